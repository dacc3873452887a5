#include "client/cli/run_in_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client/cli/shares_text.h"
#include "client/cli/text_layout.h"
#include "client/cli/timed_runs.h"
#include "network/onnx/onnx_model.h"
#include "network/run/missing_operators.h"
#include "network/run/program.h"
#include "network/run/seed_weights.h"

namespace hone::cli {
namespace {

// Of the largest element of an output. Parts are decided by what others compute, so that no bound follows from the
// number of kernels; what is wrong in kind is of the order of 1.
constexpr double kTolerance = 1e-3;

struct PartsReport {
  TimedRuns time;
  double difference = 0;
  size_t compared = 0;  // elements of outputs
  std::optional<Error> failure;
  std::vector<std::pair<std::string, Shape>> outputs;
  std::vector<WorkShare> shares;  // of one run, when its shapes are known

  bool verified() const { return !failure && compared > 0; }
};

// The file with weights for those that it lacks, and data for its inputs in their order.
struct Prepared {
  OnnxModel model;
  std::vector<HostTensor> inputs;
};

// nullopt: it does not run in parts, or lacks an operator.
Result<std::optional<Prepared>> Prepare(const std::string& path, const ModelRunOptions& options) {
  Prepared prepared{HONE_TRY(ReadOnnx(path)), {}};
  OnnxModel& model = prepared.model;
  ImportOptions in_stages = options.import;
  in_stages.in_stages = true;
  Network network = HONE_TRY(BuildNetwork(model, path, in_stages));
  if (network.rest.nodes.empty() || !MissingOf(network).empty()) return std::optional<Prepared>();
  SeedWeights(network, options.seed);
  for (ValueId weight : network.weights) {
    const GraphValue& value = network.graph.values[weight];
    model.initializers.push_back({value.name, value.data});
  }
  const std::vector<Numbers> data = RandomData(network.graph, options.seed + 1);
  std::map<std::string, HostTensor> by_name;
  for (size_t i = 0; i < data.size(); ++i) {
    const ValueId input = network.graph.inputs[i];
    by_name.emplace(network.graph.values[input].name, ToHost(data[i], network.graph.dtype(input)));
  }
  std::erase_if(model.inputs, [&](const OnnxValue& input) { return !by_name.contains(input.name); });
  for (const OnnxValue& input : model.inputs) prepared.inputs.push_back(by_name.at(input.name));
  return std::optional(std::move(prepared));
}

// Adds what an output is off by from what it is by definition.
void Compare(const std::string& name, const TensorView& seen, const TensorView& wanted, PartsReport* report) {
  const auto fail = [&](std::string message) {
    if (!report->failure) report->failure = Error{ErrorKind::kWrongResult, std::move(message), "output " + name};
  };
  if (seen.shape != wanted.shape)
    return fail(fmt::format("it is of shape {}, wanted {}", ShapeText(seen.shape), ShapeText(wanted.shape)));
  const Numbers y = ToNumbers(CopyOf(seen)), r = ToNumbers(CopyOf(wanted));
  double largest = 0, off = 0;
  size_t worst = 0;
  const size_t count = r.real.size() + r.whole.size();
  report->compared += count;
  for (size_t i = 0; i < count; ++i) {
    const double a = y.RealAt(i), b = r.RealAt(i);
    if (std::isfinite(b)) largest = std::max(largest, std::abs(b));
    double difference = a == b || (std::isnan(a) && std::isnan(b)) ? 0 : std::abs(a - b);
    if (std::isnan(difference)) difference = INFINITY;
    if (difference <= off) continue;
    off = difference;
    worst = i;
  }
  const double share = off == 0 ? 0 : off / std::max(largest, 1e-30);
  report->difference = std::max(report->difference, share);
  if (r.is_real() ? !(share <= kTolerance) : off > 0)
    fail(fmt::format("element {} is {:.9g}, wanted {:.9g}; off by {:.3g} of the largest, at most {:.3g} is rounding",
                     worst, y.RealAt(worst), r.RealAt(worst), share, kTolerance));
}

Result<PartsReport> Measure(Context& context, const std::string& path, const Prepared& prepared,
                            const ModelRunOptions& options) {
  if (!options.against.empty() || !options.export_dir.empty())
    return Error{ErrorKind::kUnsupported,
                 "the model runs in parts: --against and --export are for those that run whole", ""};
  std::vector<TensorView> inputs;
  for (const HostTensor& input : prepared.inputs) inputs.push_back(ViewOf(input));
  Client* client = HONE_TRY(context.Daemon(options.get.threads));
  const auto program_context =
      std::make_shared<const ProgramContext>(ProgramContext{path, client, options.get, options.import.accuracy});
  Program program(prepared.model, program_context);
  PartsReport report;
  const std::vector<TensorView> outputs = HONE_TRY(program.Run(inputs));
  for (size_t i = 0; i < outputs.size(); ++i)
    report.outputs.emplace_back(prepared.model.outputs[i].name, outputs[i].shape);
  if (options.check) {
    ProgramContext definition;
    definition.path = path;
    definition.is_plain = true;
    Program plain(prepared.model, std::make_shared<const ProgramContext>(std::move(definition)));
    const std::vector<TensorView> wanted = HONE_TRY(plain.Run(inputs));
    for (size_t i = 0; i < wanted.size(); ++i) Compare(prepared.model.outputs[i].name, outputs[i], wanted[i], &report);
  }
  report.time = HONE_TRY(TimeRuns(
      [&]() -> Result<void> {
        HONE_TRY(program.Run(inputs));
        return {};
      },
      options.repeats));
  program_context->shares->is_on = true;
  HONE_TRY(program.Run(inputs));
  report.shares = program_context->shares->Sorted();
  return report;
}

void PrintJson(const std::string& path, const ModelRunOptions& options, const PartsReport& report) {
  Json json;
  json.Set("model", path)
      .Set("in_parts", true)
      .Set("time_us", report.time.median_us)
      .Set("low_us", report.time.low_us)
      .Set("high_us", report.time.high_us)
      .Set("runs", report.time.runs);
  std::vector<Json> outputs;
  for (const auto& [name, shape] : report.outputs) outputs.push_back(Json().Set("name", name).Set("shape", shape));
  json.Set("outputs", std::move(outputs)).Set("shares", SharesJson(report.shares));
  if (options.check) {
    json.Set("difference", report.difference)
        .Set("tolerance", kTolerance)
        .Set("compared", report.compared)
        .Set("verified", report.verified());
    if (report.failure) json.Set("error", ErrorJson(*report.failure));
  }
  Print(json.Dump() + "\n");
}

void PrintText(const std::string& path, const ModelRunOptions& options, const PartsReport& report) {
  std::string shapes;
  for (const auto& [name, shape] : report.outputs)
    shapes += fmt::format("{}{} {}", shapes.empty() ? "" : ", ", name, ShapeText(shape));
  std::vector<std::pair<std::string, std::string>> facts = {
      {"model", path},
      {"parts", "values that it computes decide shapes; kernels are made for those that come up"},
      {"time", report.time.Text()},
      {"shapes", shapes}};
  if (options.check) {
    facts.emplace_back("outputs", fmt::format("{} elements, off by {} of the largest from the model by definition",
                                              report.compared, ErrorText(report.difference)));
    facts.emplace_back("verified", report.verified() ? "yes" : report.failure ? "NO" : "no: nothing came out");
  }
  Print(SharesText(report.shares));
  Print(FactsText(facts));
}

}  // namespace

std::optional<int> RunModelInParts(Context& context, const std::string& path, const ModelRunOptions& options) {
  const Result<std::optional<Prepared>> prepared = Prepare(path, options);
  if (!prepared || !*prepared) return std::nullopt;
  const Result<PartsReport> report = Measure(context, path, **prepared, options);
  if (!report) {
    Error error = report.error();
    if (error.where.find(path) == std::string::npos)
      error.where = path + (error.where.empty() ? "" : ": " + error.where);
    return context.Fail(error);
  }
  if (report->failure) PrintError(*report->failure, false);
  if (context.json())
    PrintJson(path, options, *report);
  else
    PrintText(path, options, *report);
  return report->failure ? kFailed : kDone;
}

}  // namespace hone::cli
