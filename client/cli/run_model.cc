#include "client/cli/run_model.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/clock.h"
#include "base/file.h"
#include "client/cli/model_file.h"
#include "client/cli/report/kernel_markup.h"
#include "client/cli/run_in_parts.h"
#include "client/cli/shares_text.h"
#include "client/cli/text_layout.h"
#include "client/cli/timed_runs.h"
#include "ir/graph/dtype_traits.h"
#include "ir/target.h"
#include "network/graph/simplify.h"
#include "network/run/check_network.h"
#include "network/run/compare_layers.h"
#include "network/run/lower_served.h"
#include "network/run/missing_operators.h"
#include "network/run/seed_weights.h"
#include "network/run/work_shares.h"

namespace hone::cli {
namespace {

constexpr double kMostError = 0.1;  // of a layer beside another model's, before it is named

// Networks have hundreds of kernels, and each keeps its file open.
void AllowManyFiles() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

struct ModelReport {
  TimedRuns time;
  double expected_us = 0;
  std::vector<WorkShare> shares;  // largest first
  size_t kernels = 0, calls = 0;
  ArenaPlan arena;
  int64_t constant_bytes = 0;
  std::optional<NetworkCheck> check;
  std::vector<LayerError> layers;  // beside another model's
};

// Medians of each call over a few runs, summed a kernel.
Result<void> MeasureShares(Executor& executor, const CallPlan& plan, ModelReport* report) {
  constexpr int kRuns = 5;
  std::vector<std::vector<double>> times(executor.call_count());
  for (int run = 0; run < kRuns; ++run) {
    for (size_t i = 0; i < executor.call_count(); ++i) {
      Stopwatch stopwatch;
      HONE_TRY(executor.RunCalls(i, i + 1));
      times[i].push_back(stopwatch.Microseconds());
    }
  }
  WorkShares shares;
  for (size_t i = 0; i < times.size(); ++i) {
    std::sort(times[i].begin(), times[i].end());
    shares.Add(plan.calls[i], times[i][kRuns / 2]);
  }
  report->shares = shares.Sorted();
  report->kernels = report->shares.size();
  return {};
}

// model.onnx with its weights inside, and what goes in and comes out: DIR/tensors.json names files of plain elements in
// the types that the model declares.
Result<void> Export(const std::string& path, const ModelRunOptions& options, const Network& network, const Graph& plain,
                    const std::vector<Numbers>& data, Executor& executor) {
  const std::string& directory = options.export_dir;
  HONE_TRY(CreateDirectories(directory));
  std::vector<OnnxTensor> weights;
  for (ValueId weight : network.weights) {
    const GraphValue& value = plain.values[weight];
    weights.push_back({value.name, std::make_shared<HostTensor>(*value.data)});
  }
  const std::string bytes = HONE_TRY(WithWeights(path, weights));
  HONE_TRY(WriteFileAtomically(directory + "/model.onnx", bytes, 0644));
  std::vector<Json> tensors;
  auto add = [&](std::string_view role, size_t i, ValueId value, std::string_view elements) -> Result<void> {
    std::string file = fmt::format("{}_{}.bin", role, i);
    HONE_TRY(WriteFileAtomically(directory + "/" + file, elements, 0644));
    tensors.push_back(Json()
                          .Set("role", role)
                          .Set("name", plain.values[value].name)
                          .Set("dtype", TraitsOf(plain.dtype(value)).numpy)
                          .Set("shape", plain.shape(value))
                          .Set("file", file));
    return {};
  };
  for (size_t i = 0; i < data.size(); ++i) {
    ValueId input = plain.inputs[i];
    HONE_TRY(add("input", i, input, ToHost(data[i], plain.dtype(input)).data));
  }
  SetInputs(executor, plain, data);
  HONE_TRY(executor.Run());
  for (size_t i = 0; i < plain.outputs.size(); ++i) {
    ValueId output = plain.outputs[i];
    const std::span<const std::byte> seen = HONE_TRY(executor.Output(i));
    HostTensor tensor{plain.dtype(output), plain.shape(output),
                      std::string(reinterpret_cast<const char*>(seen.data()), seen.size())};
    HONE_TRY(add("output", i, output, tensor.data));
  }
  return WriteFileAtomically(directory + "/tensors.json", Json().Set("tensors", tensors).Dump() + "\n", 0644);
}

// The layers of a network beside those of another file's, on inputs of that one.
Result<std::vector<LayerError>> Against(Graph& plain, const ModelRunOptions& options) {
  OnnxModel file = HONE_TRY(ReadOnnx(options.against));
  Network exact = HONE_TRY(BuildNetwork(file, options.against, options.import));
  HONE_TRY(CheckComplete(exact, options.against));
  SeedWeights(exact, options.seed);
  return CompareLayers(plain, exact.graph, RandomData(exact.graph, options.seed + 1));
}

Result<ModelReport> Measure(Context& context, const std::string& path, const ModelRunOptions& options) {
  AllowManyFiles();
  OnnxModel file = HONE_TRY(ReadOnnx(path));
  Network network = HONE_TRY(BuildNetwork(file, path, options.import));
  file = {};
  SeedWeights(network, options.seed);
  Graph plain = network.graph;  // as the file says it; elements are shared
  HONE_TRY(Simplify(network.graph));
  const bool on_cpu = options.get.target.empty() || KindOfTarget(options.get.target) == kCpuKind;
  HONE_TRY(CheckComplete(network, path));
  Client* client = HONE_TRY(context.Daemon(options.get.threads));
  // Starts the daemon once, before many connections ask for it.
  StatusReply status = HONE_TRY(client->Call(StatusRequest{}, Context::Patience()));
  ExecutorOptions execution{options.get, static_cast<int>(status.builders) + 1};
  OpenedKernels opened;
  execution.opened = &opened;
  const CallPlan plan = HONE_TRY(LowerServed(*client, network.graph, {.has_channels_last = on_cpu}, execution));
  std::unique_ptr<Executor> executor = HONE_TRY(Executor::Create(*client, network.graph, plan, execution));
  std::vector<Numbers> data = RandomData(plain, options.seed + 1);
  ModelReport report;
  report.calls = plan.calls.size();
  report.arena = executor->arena();
  report.constant_bytes = executor->constant_bytes();
  for (size_t i = 0; i < executor->call_count(); ++i)
    if (!executor->is_host(i)) report.expected_us += executor->expected_us(i);
  if (options.check) report.check = HONE_TRY(CheckNetwork(*executor, network.graph, plan, plain, data));
  SetInputs(*executor, plain, data);
  report.time = HONE_TRY(TimeRuns([&] { return executor->Run(); }, options.repeats));
  HONE_TRY(MeasureShares(*executor, plan, &report));
  if (!options.against.empty()) report.layers = HONE_TRY(Against(plain, options));
  if (!options.export_dir.empty()) HONE_TRY(Export(path, options, network, plain, data, *executor));
  return report;
}

void PrintJson(const std::string& path, const ModelReport& report) {
  Json json;
  json.Set("model", path)
      .Set("time_us", report.time.median_us)
      .Set("low_us", report.time.low_us)
      .Set("high_us", report.time.high_us)
      .Set("runs", report.time.runs)
      .Set("expected_us", report.expected_us)
      .Set("kernels", report.kernels)
      .Set("calls", report.calls)
      .Set("arena_bytes", report.arena.bytes)
      .Set("values_bytes", report.arena.sum)
      .Set("constant_bytes", report.constant_bytes);
  if (report.check) {
    json.Set("difference", report.check->difference)
        .Set("tolerance", report.check->tolerance)
        .Set("max_rel_err", report.check->max_rel_err)
        .Set("quantized", report.check->quantized)
        .Set("ties", report.check->ties)
        .Set("verified", !report.check->failure.has_value());
    if (report.check->failure) json.Set("error", ErrorJson(*report.check->failure));
  }
  json.Set("shares", SharesJson(report.shares));
  if (!report.layers.empty()) {
    std::vector<Json> layers;
    for (const LayerError& layer : report.layers)
      layers.push_back(Json()
                           .Set("value", layer.name)
                           .Set("node", layer.node)
                           .Set("error", layer.error)
                           .Set("largest", layer.largest));
    json.Set("layers", std::move(layers));
    if (const std::optional<LayerError> first = FirstAbove(report.layers, kMostError))
      json.Set("first_above", first->name);
  }
  Print(json.Dump() + "\n");
}

// Where accuracy is lost beside another model.
void PrintLosses(const std::vector<LayerError>& layers) {
  if (layers.empty()) return;
  Table table({{"error", Table::Align::kRight}, {"largest", Table::Align::kRight}, {"value"}, {"node"}});
  for (const LayerError& layer : Losses(layers))
    table.Add({fmt::format("{:.2g} %", 100 * layer.error), fmt::format("{:.2g} %", 100 * layer.largest),
               Cut(OneLine(layer.name), 60), Cut(OneLine(layer.node), 60)});
  Print(table.Text());
  const std::optional<LayerError> first = FirstAbove(layers, kMostError);
  Print(FactsText({{"layers", fmt::format("{} compared, the last one {:.2g} % off; above: where the error grows",
                                          layers.size(), 100 * layers.back().error)},
                   {"first", first ? fmt::format("{} is the first that is more than {:.0f} % off, by {:.2g} %",
                                                 first->name, 100 * kMostError, 100 * first->error)
                                   : fmt::format("none is more than {:.0f} % off", 100 * kMostError)}}));
}

void PrintText(const std::string& path, const ModelReport& report) {
  Print(SharesText(report.shares));
  std::vector<std::pair<std::string, std::string>> facts = {
      {"model", path},
      {"time", report.time.Text()},
      {"expected", fmt::format("{} for {} of {}", TimeText(report.expected_us), Plural(report.calls, "call"),
                               Plural(report.kernels, "kernel"))},
      {"memory",
       fmt::format("{} planned for values of {} together; constants {}",
                   BytesText(static_cast<double>(report.arena.bytes)), BytesText(static_cast<double>(report.arena.sum)),
                   BytesText(static_cast<double>(report.constant_bytes)))}};
  if (report.check) {
    const NetworkCheck& check = *report.check;
    facts.emplace_back(
        "outputs", fmt::format("off by {} of the largest from the network in double precision; {} is rounding of {} "
                               "kernels in a row",
                               ErrorText(check.difference), ErrorText(check.tolerance), check.depth));
    facts.emplace_back("kernels", fmt::format("{} checked on the values that flow, off by at most {} of the scale",
                                              check.kernels, ErrorText(check.max_rel_err)));
    if (check.quantized > 0)
      facts.emplace_back(
          "quantised", fmt::format("{} elements, {} of them on the other side of a tie", check.quantized, check.ties));
    facts.emplace_back("verified", check.failure ? "NO" : "yes");
  }
  Print(FactsText(facts));
  PrintLosses(report.layers);
}

}  // namespace

int RunModel(Context& context, const std::string& path, const ModelRunOptions& options) {
  Result<ModelReport> report = Measure(context, path, options);
  if (!report && report.error().kind == ErrorKind::kUnsupported)
    if (const std::optional<int> status = RunModelInParts(context, path, options)) return *status;
  if (!report) {
    Error error = report.error();
    if (error.where.find(path) == std::string::npos)
      error.where = path + (error.where.empty() ? "" : ": " + error.where);
    return context.Fail(error);
  }
  bool failed = report->check && report->check->failure;
  if (failed) PrintError(*report->check->failure, false);
  if (context.json()) {
    PrintJson(path, *report);
  } else {
    PrintText(path, *report);
  }
  return failed ? kFailed : kDone;
}

}  // namespace hone::cli
