// hone check: whether models run whole, what they lack if not, and how long they will take, without compiling anything.
#include <fmt/format.h>

#include <algorithm>

#include "client/cli/command.h"
#include "client/cli/context.h"
#include "client/cli/explain_text.h"
#include "client/cli/model_file.h"
#include "client/cli/report/kernel_markup.h"
#include "client/cli/text_layout.h"
#include "ir/graph/dtype_traits.h"
#include "network/graph/simplify.h"
#include "network/run/lower_served.h"
#include "network/run/missing_operators.h"

namespace hone::cli {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kShownCauses = 12;
constexpr size_t kShownHost = 8;
constexpr size_t kNameColumns = 40;

struct Cause {
  Missing missing;
  size_t dependents = 0;
};

// Calls of one operator that run on the host for one reason.
struct HostWork {
  std::string label;
  std::string why;
  size_t calls = 0;
};

// What is known of the time of all calls of kernels, from runs on this machine and from the cost model.
struct Expectation {
  double us = 0;
  double flops = 0;
  size_t known = 0, served = 0;  // kernels of it whose time is known, and those of them that ran here
  std::string why_none;          // why the cost model knows nothing; "" if it does
  std::string problem;           // why nothing could be asked
};

struct ModelReport {
  // An input or output.
  struct Value {
    std::string name;
    std::string dtype;  // "": not known before the network runs
    Shape shape;
  };
  std::string path;
  int64_t opset = 0;
  std::string producer;
  size_t nodes = 0;
  std::vector<Cause> causes;
  std::vector<HostWork> host;
  size_t waiting = 0;  // nodes whose shapes are decided when the network runs
  size_t kernels = 0, kernel_calls = 0, host_calls = 0;
  std::vector<Value> inputs, weights, outputs;  // weights: inputs that are taken for such
  std::optional<Expectation> expectation;       // of a model that runs

  bool runs() const { return causes.empty(); }
};

ModelReport::Value ValueOf(const Graph& graph, ValueId value, const std::string& name) {
  return {name, std::string(TraitsOf(graph.dtype(value)).name), graph.shape(value)};
}

// The file's inputs and outputs, not those of the part that is imported. What is decided when the network runs has
// nothing but a name.
void FindValues(const OnnxModel& file, const Network& network, ModelReport* report) {
  const Graph& graph = network.graph;
  for (const OnnxValue& input : file.inputs) {
    for (ValueId value : graph.inputs)
      if (graph.values[value].name == input.name) report->inputs.push_back(ValueOf(graph, value, input.name));
    for (ValueId value : network.weights)
      if (graph.values[value].name == input.name) report->weights.push_back(ValueOf(graph, value, input.name));
  }
  for (const OnnxValue& output : file.outputs) {
    const auto known = std::find(network.outputs.begin(), network.outputs.end(), output.name);
    const auto at = static_cast<size_t>(known - network.outputs.begin());
    report->outputs.push_back(known == network.outputs.end() ? ModelReport::Value{output.name, "", {}}
                                                             : ValueOf(graph, graph.outputs[at], output.name));
  }
}

// In microseconds, 0 where nothing is known: as it was tuned, as the cost model expects it, as its first call took.
Result<double> TimeOf(Channel& channel, const PredictReply& reply) {
  if (reply.measured_us > 0) return reply.measured_us;
  if (reply.origin.empty()) return reply.by_default.expected_us;
  if (reply.served.expected_us > 0) return reply.served.expected_us;
  return HONE_TRY(channel.Call(ShowRequest{reply.fingerprint}, Context::Patience())).row.expected_us;
}

// Asks honed about each kernel, and keeps those that it refuses.
Expectation Expect(Context& context, const ModelFile& model, int threads, Refusals* refused) {
  Expectation all;
  Result<Channel> channel = context.Ask();
  if (!channel) {
    all.problem = channel.error().Text();
    return all;
  }
  const std::vector<NamedKernel> kernels = model.Kernels();
  ProgressBar bar(kernels.size(), !context.json());
  for (size_t i = 0; i < kernels.size(); ++i) {
    const NamedKernel& kernel = kernels[i];
    bar.Show(i, kernel.shown());
    Result<PredictReply> reply =
        channel->Call(PredictRequest{kernel.text, static_cast<uint32_t>(threads)}, Context::Patience());
    Result<double> us = reply ? TimeOf(*channel, *reply) : reply.error();
    if (!us) {
      if (IsRefusal(us.error())) {
        refused->emplace(kernel.text, us.error());
        continue;
      }
      all.problem = us.error().Text();
      break;
    }
    const auto count = static_cast<double>(kernel.count);
    all.flops += count * reply->flops;
    all.why_none = reply->why_none;
    if (*us <= 0) continue;
    ++all.known;
    if (!reply->origin.empty()) ++all.served;
    all.us += count * *us;
  }
  bar.Clear();
  return all;
}

Result<ModelReport> Check(Context& context, const std::string& path, const ImportOptions& options, int threads) {
  ModelReport report;
  report.path = path;
  const OnnxModel file = HONE_TRY(ReadOnnx(path));
  ModelFile model;
  model.path = path;
  ImportOptions in_stages = options;
  in_stages.in_stages = true;
  model.network = HONE_TRY(BuildNetwork(file, path, in_stages));
  report.waiting = model.network.rest.nodes.size();
  Graph& graph = model.network.graph;
  FindValues(file, model.network, &report);
  HONE_TRY(Simplify(graph));
  report.opset = file.opset;
  report.producer = file.producer;
  report.nodes = file.nodes.size();
  for (Missing& missing : MissingOf(model.network)) {
    const size_t dependents = CountDependents(file, missing.nodes);
    report.causes.push_back({std::move(missing), dependents});
  }
  Result<CallPlan> served = LowerServed(graph, {}, [&](const CallPlan& plan) {
    Refusals refused;
    if (!report.runs()) return refused;
    model.plan = plan;
    report.expectation = Expect(context, model, threads, &refused);
    return refused;
  });
  if (!served) {
    report.causes.push_back({{"kernel", "honed refuses all kernels: " + served.error().Text(), {}}, 0});
    return report;
  }
  model.plan = *std::move(served);
  for (const KernelCall& call : model.plan.calls) {
    if (!call.is_host()) {
      ++report.kernel_calls;
      continue;
    }
    if (call.is_check) continue;  // part of what reads by these indices
    ++report.host_calls;
    auto known = std::find_if(report.host.begin(), report.host.end(),
                              [&](const HostWork& one) { return one.label == call.label && one.why == call.why_host; });
    if (known == report.host.end()) known = report.host.insert(report.host.end(), {call.label, call.why_host});
    ++known->calls;
  }
  report.kernels = model.Kernels().size();
  return report;
}

std::string ExpectedText(const Expectation& expected, size_t kernels) {
  if (!expected.problem.empty()) return "not known: " + expected.problem;
  const std::string work = expected.flops > 0 ? "; " + FlopsText(expected.flops) : "";
  if (kernels == 0) return "nothing but host code";
  if (expected.known == 0) {
    return fmt::format("not known: no kernel of it ran here yet, and {}{}", expected.why_none, work);
  }
  return fmt::format("{}{}; {} of {} ran here{}", TimeText(expected.us),
                     expected.known < kernels ? fmt::format(" for {} of {} kernels", expected.known, kernels) : "",
                     expected.served, Plural(kernels, "kernel"), work);
}

std::string ValuesText(const std::vector<ModelReport::Value>& values) {
  constexpr size_t kMost = 6;
  std::string all;
  for (size_t i = 0; i < std::min(values.size(), kMost); ++i) {
    const auto& [name, dtype, shape] = values[i];
    all += fmt::format("{}{}{}{}", i > 0 ? ", " : "", name, dtype.empty() ? "" : " " + dtype,
                       shape.empty() ? "" : " " + ShapeText(shape));
  }
  if (values.size() > kMost) all += fmt::format(", {} more", values.size() - kMost);
  return all.empty() ? "none" : all;
}

std::vector<Json> ValuesJson(const std::vector<ModelReport::Value>& values) {
  std::vector<Json> all;
  for (const auto& [name, dtype, shape] : values) {
    all.push_back(Json().Set("name", name));
    if (!dtype.empty()) all.back().Set("dtype", dtype).Set("shape", shape);
  }
  return all;
}

void PrintText(const ModelReport& report) {
  std::vector<std::pair<std::string, std::string>> facts = {
      {"model", report.path},
      {"runs", report.runs()              ? report.host_calls == 0 ? "yes" : "yes, some of it in plain code on the host"
               : report.causes.size() > 1 ? fmt::format("NO, for {} causes", report.causes.size())
                                          : "NO"},
      {"file", fmt::format("opset {}, {}{}", report.opset, Plural(report.nodes, "node"),
                           report.producer.empty() ? "" : ", by " + report.producer)},
      {"inputs", ValuesText(report.inputs)}};
  if (!report.weights.empty())
    facts.emplace_back("weights",
                       ValuesText(report.weights) + "; inputs that look like weights: --data NAME if one is data");
  facts.emplace_back("outputs", ValuesText(report.outputs));
  facts.emplace_back("calls", fmt::format("{} to {}, {} to host code", report.kernel_calls,
                                          Plural(report.kernels, "kernel"), report.host_calls));
  if (report.waiting > 0)
    facts.emplace_back("when it runs",
                       fmt::format("{} more, when values decide their shapes", Plural(report.waiting, "node")));
  if (report.expectation) facts.emplace_back("expected", ExpectedText(*report.expectation, report.kernels));
  Print(WrappedFacts(facts, kColumns));
  if (!report.causes.empty()) {
    Table table(
        {{"missing"}, {"nodes", Table::Align::kRight}, {"depend on it", Table::Align::kRight}, {"first"}, {"why"}});
    for (size_t i = 0; i < std::min(report.causes.size(), kShownCauses); ++i) {
      const auto& [missing, dependents] = report.causes[i];
      table.Add({missing.op, std::to_string(missing.nodes.size()), std::to_string(dependents),
                 missing.nodes.empty() ? "-" : Cut(missing.nodes.front(), kNameColumns), missing.reason});
    }
    Print("\n" + table.Text());
    if (report.causes.size() > kShownCauses)
      Print(fmt::format("{} more causes; --json has all\n", report.causes.size() - kShownCauses));
  }
  if (!report.host.empty()) {
    Table table({{"on the host"}, {"calls", Table::Align::kRight}, {"why"}});
    for (size_t i = 0; i < std::min(report.host.size(), kShownHost); ++i)
      table.Add({report.host[i].label, std::to_string(report.host[i].calls), report.host[i].why});
    Print("\n" + table.Text());
    if (report.host.size() > kShownHost)
      Print(fmt::format("{} more on the host; --json has all\n", report.host.size() - kShownHost));
  }
}

Json ToJson(const ModelReport& report) {
  std::vector<Json> missing, host;
  for (const Cause& cause : report.causes) {
    missing.push_back(Json()
                          .Set("op", cause.missing.op)
                          .Set("reason", cause.missing.reason)
                          .Set("nodes", cause.missing.nodes)
                          .Set("dependents", cause.dependents));
  }
  for (const HostWork& work : report.host)
    host.push_back(Json().Set("op", work.label).Set("reason", work.why).Set("calls", work.calls));
  Json json;
  json.Set("model", report.path)
      .Set("runs", report.runs())
      .Set("opset", report.opset)
      .Set("nodes", report.nodes)
      .Set("kernels", report.kernels)
      .Set("kernel_calls", report.kernel_calls)
      .Set("host_calls", report.host_calls)
      .Set("waiting_nodes", report.waiting)
      .Set("missing", std::move(missing))
      .Set("host", std::move(host))
      .Set("inputs", ValuesJson(report.inputs))
      .Set("weights", ValuesJson(report.weights))
      .Set("outputs", ValuesJson(report.outputs));
  if (report.expectation && report.expectation->problem.empty()) {
    json.Set("expected_us", report.expectation->us)
        .Set("expected_kernels", report.expectation->known)
        .Set("served_kernels", report.expectation->served)
        .Set("flops", report.expectation->flops);
  }
  return json;
}

int RunCheck(Context& context, const Arguments& arguments) {
  Result<int> threads = ReadThreads(arguments);
  if (!threads) return context.WrongUsage(threads.error());
  Result<ImportOptions> options = ReadImportOptions(arguments);
  if (!options) return context.WrongUsage(options.error());
  const std::vector<std::string> paths = arguments.Texts("MODEL");
  size_t running = 0;
  Table table({{"runs"},
               {"nodes", Table::Align::kRight},
               {"kernels", Table::Align::kRight},
               {"host calls", Table::Align::kRight},
               {"model"},
               {"missing"}});
  for (const std::string& path : paths) {
    Result<ModelReport> report = Check(context, path, *options, *threads);
    if (report && report->runs()) ++running;
    if (context.json()) {
      if (report) {
        Print(ToJson(*report).Dump() + "\n");
      } else {
        Print(Json().Set("model", path).Set("runs", false).Set("error", ErrorJson(report.error())).Dump() + "\n");
      }
    } else if (paths.size() == 1) {
      if (!report) return context.Fail(report.error());
      PrintText(*report);
    } else if (report) {
      std::string missing;
      for (const Cause& cause : report->causes)
        missing += fmt::format("{}{} ×{}", missing.empty() ? "" : ", ", cause.missing.op, cause.missing.nodes.size());
      table.Add({report->runs() ? "yes" : "NO", std::to_string(report->nodes), std::to_string(report->kernels),
                 std::to_string(report->host_calls), path, Cut(missing, kColumns)});
    } else {
      table.Add({"NO", "-", "-", "-", path, Cut(report.error().message, kColumns)});
    }
  }
  if (!context.json() && paths.size() > 1) {
    Print(table.Text());
    Print(fmt::format("{} of {} models run\n", running, paths.size()));
  }
  return running == paths.size() ? kDone : kFailed;
}

}  // namespace

Command CheckCommand() {
  return {
      .name = "check",
      .summary = "tell whether models run, what they lack if not, and how long they will take",
      .details =
          R"(Reads ONNX models without compiling or running anything. Shows for one model: whether it runs; each operator that is
missing, how often, why, and how many nodes depend on it; what runs in plain code on the host because no kernel takes it;
and the time that its kernels are expected to take, from what ran on this machine and from the cost model.
Several models are a table. If a model does not run, the exit status is 1.

Examples:
  hone check resnet50.onnx
  hone check bert.onnx --shape input_ids=1x128,attention_mask=1x128
  hone check zoo/*.onnx)",
      .positionals = {{"MODEL", "NAME.onnx; several are a table", true, true}},
      .options = {kThreadsOption, kShapeOption, kDataOption, kAccuracyOption},
      .run = RunCheck};
}

}  // namespace hone::cli
