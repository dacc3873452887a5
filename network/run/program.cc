#include "network/run/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "network/graph/simplify.h"
#include "network/onnx/data_shaped.h"
#include "network/run/check_network.h"
#include "network/run/count_steps.h"
#include "network/run/evaluate_elements.h"
#include "network/run/loops.h"
#include "network/run/lower_served.h"
#include "network/run/missing_operators.h"
#include "network/run/part_models.h"

namespace hone {
namespace {

// Versions have kernels and a plan each, and share the rest: constants, their packed copies where kernels want equal
// layouts, memory between calls. For a new version old ones go, of whichever program of the model, once there are more
// of all, or the constants and their copies take more than this, and more than two copies of each.
constexpr size_t kMostVersions = 512;
constexpr int64_t kMostConstantBytes = int64_t{1} << 32;
// Steps of a stage that is interpreted when it is met first, since kernels for it would be longer in the making; and
// how often it is until they are made all the same.
constexpr double kSmallSteps = 1e6;
constexpr int kSmallRuns = 3;
// As shares of the time.
constexpr char kPreparing[] = "preparing", kNewShapes[] = "shapes that were not met before want kernels and plans";

// Shapes of all inputs, elements of those that decide.
std::string KeyOf(const OnnxModel& model, const std::set<std::string>& deciding,
                  const std::vector<TensorView>& inputs) {
  std::string key;
  for (size_t i = 0; i < inputs.size(); ++i) {
    key += fmt::format("{}{};", static_cast<int>(inputs[i].dtype), ShapeText(inputs[i].shape));
    if (deciding.count(model.inputs[i].name) != 0)
      key.append(static_cast<const char*>(inputs[i].data), inputs[i].bytes()) += ";";
  }
  return key;
}

}  // namespace

// One version of a program: a network of known shapes, and what waits for its results.
class ProgramVersion {
 public:
  static Result<std::unique_ptr<ProgramVersion>> Create(Program& program, const std::vector<TensorView>& inputs) {
    std::unique_ptr<ProgramVersion> stage(new ProgramVersion(program));
    ImportOptions options;
    options.in_stages = true;
    options.accuracy = stage->context_->accuracy;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string& name = program.model_.inputs[i].name;
      options.data.insert(name);
      if (program.deciding_.count(name) != 0) {
        options.elements[name] = std::make_shared<HostTensor>(CopyOf(inputs[i]));
      } else {
        options.shapes[name] = inputs[i].shape;
        stage->read_.push_back(i);
      }
    }
    stage->network_ = HONE_TRY(BuildNetwork(program.model_, stage->context_->path, options));
    HONE_TRY(CheckComplete(stage->network_, stage->context_->path));
    if (!stage->context_->is_plain) HONE_TRY(Simplify(stage->network_.graph));
    stage->is_interpreted_ =
        stage->context_->is_plain || (!program.is_whole_ && CountSteps(stage->network_.graph) <= kSmallSteps);
    stage->SplitRest();
    stage->PassOn();
    stage->network_.graph.ForgetElements();
    return stage;
  }

  ~ProgramVersion() { context_->versions->erase(place_); }

  Program& program() const { return program_; }
  bool is_running() const { return is_running_; }

  void MoveToFront() { context_->versions->splice(context_->versions->begin(), *context_->versions, place_); }

  Result<void> MakeKernels(std::shared_ptr<ModelFile> file = nullptr) {
    if (executor_ != nullptr || context_->is_plain) return {};
    is_interpreted_ = false;
    Graph& graph = network_.graph;
    ExecutorOptions options{context_->get};
    options.constants = context_->constants.get();
    std::deque<SharedArena>& arenas = *context_->arenas;
    if (arenas.size() <= program_.depth_) arenas.resize(program_.depth_ + 1);
    options.arena = &arenas[program_.depth_];
    OpenedKernels opened;
    options.opened = &opened;
    options.file = std::move(file);
    plan_ = HONE_TRY(LowerServed(*context_->client, graph, {}, options));
    executor_ = HONE_TRY(Executor::Create(*context_->client, graph, plan_, options));
    return {};
  }

  // Gives back what holds results. Kernels and plans stay.
  void Release() {
    interpreted_ = {};
    computed_.clear();
    results_.clear();
    if (next_ != nullptr) next_->Release();
    for (const auto& [_, body] : bodies_) body->Release();
  }

  std::vector<std::optional<TensorType>> OutputTypes() const {
    std::vector<std::optional<TensorType>> types;
    for (const OnnxValue& output : program_.model_.outputs) {
      auto found = std::find(network_.outputs.begin(), network_.outputs.end(), output.name);
      if (found == network_.outputs.end())
        types.push_back(std::nullopt);
      else
        types.push_back(
            network_.graph.values[sources_[static_cast<size_t>(found - network_.outputs.begin())].value].type);
    }
    return types;
  }

  // `outputs`: where they may be written at once, one of the model each, or none.
  Result<std::vector<TensorView>> Run(const std::vector<TensorView>& inputs, std::span<void* const> outputs) {
    const Running running(*this);
    ++runs_;
    const bool computes = !network_.graph.outputs.empty();  // or hands on what others do
    if (computes && (!is_interpreted_ || runs_ > kSmallRuns)) {
      Stopwatch stopwatch;
      const bool is_new = executor_ == nullptr && !context_->is_plain;
      HONE_TRY(MakeKernels());
      if (is_new) Count(kPreparing, kNewShapes, stopwatch);
    }
    std::vector<TensorView> computed;
    if (computes) computed = HONE_TRY(is_interpreted_ ? Interpret(inputs) : Execute(inputs, outputs));
    results_.clear();
    for (const Source& source : sources_) results_.push_back((source.is_input ? inputs : computed)[source.at]);
    std::map<std::string, TensorView> known;
    for (size_t i = 0; i < network_.outputs.size(); ++i) known[network_.outputs[i]] = results_[i];
    if (has_rest_) HONE_TRY(RunRest(known));
    std::vector<TensorView> results;
    for (const OnnxValue& output : program_.model_.outputs) {
      auto found = known.find(output.name);
      if (found == known.end())
        return Error{ErrorKind::kInvalid, "nothing computes it",
                     fmt::format("{}: output {}", context_->path, output.name)};
      results.push_back(found->second);
    }
    return results;
  }

 private:
  // As long as it lives; what ran within the version was used before the version was.
  class Running {
   public:
    explicit Running(ProgramVersion& version) : version_(version) { version_.is_running_ = true; }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    ~Running() {
      version_.is_running_ = false;
      version_.MoveToFront();
    }

   private:
    ProgramVersion& version_;
  };

  // Where a result comes from: the program's input or the graph's output number `at`.
  struct Source {
    ValueId value;
    bool is_input = false;
    size_t at = 0;
  };

  explicit ProgramVersion(Program& program)
      : program_(program),
        context_(program.context_),
        place_(context_->versions->insert(context_->versions->begin(), this)) {}

  // What can be computed as soon as the network has run, and what comes after that.
  void SplitRest() {
    std::set<std::string> known(network_.rest.reads.begin(), network_.rest.reads.end());
    for (const OnnxTensor& tensor : network_.rest.constants) known.insert(tensor.name);
    auto is_known = [&](const std::string& name) { return name.empty() || known.count(name) != 0; };
    for (OnnxNode& node : network_.rest.nodes) {
      const bool is_apart = IsLoop(node) || FindDataShaped(OperatorName(node)) != nullptr;
      if (is_apart && std::all_of(node.inputs.begin(), node.inputs.end(), is_known) &&
          std::all_of(node.captured.begin(), node.captured.end(), is_known)) {
        apart_.push_back(std::move(node));
      } else {
        waiting_.push_back(std::move(node));
      }
    }
    has_rest_ = !network_.rest.nodes.empty();
    network_.rest.nodes = {};
  }

  // Inputs that are results, too, are handed on where they are, and inputs that no node reads are not taken: the graph
  // is of what is left.
  void PassOn() {
    Graph& graph = network_.graph;
    std::map<ValueId, size_t> given;
    for (size_t i = 0; i < read_.size(); ++i) given[graph.inputs[i]] = read_[i];
    for (ValueId value : std::exchange(graph.outputs, {})) {
      const auto input = given.find(value);
      sources_.push_back({value, input != given.end(), input != given.end() ? input->second : graph.outputs.size()});
      if (!sources_.back().is_input) graph.outputs.push_back(value);
    }
    const IdVector<ValueId, int> readers = CountReaders(graph);
    std::erase_if(graph.inputs, [&](ValueId value) { return readers[value] == 0; });
    read_.clear();
    for (ValueId value : graph.inputs) read_.push_back(given.at(value));
  }

  // Where the caller wants result number i; nullptr: nowhere (the rest reads it), or over what is read.
  void* PlaceOf(size_t i, const std::vector<TensorView>& inputs, std::span<void* const> outputs) const {
    if (i >= network_.outputs.size()) return nullptr;
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (program_.model_.outputs[o].name != network_.outputs[i]) continue;
      const auto* begin = static_cast<const char*>(outputs[o]);
      const auto bytes = static_cast<size_t>(KernelBytes(network_.graph, sources_[i].value));
      for (const TensorView& input : inputs) {
        const auto* data = static_cast<const char*>(input.data);
        if (begin < data + input.bytes() && data < begin + bytes) return nullptr;
      }
      return outputs[o];
    }
    return nullptr;
  }

  // The graph's outputs.
  Result<std::vector<TensorView>> Execute(const std::vector<TensorView>& inputs, std::span<void* const> outputs) {
    for (size_t i = 0; i < read_.size(); ++i) {
      const TensorView& given = inputs[read_[i]];
      HONE_CHECK(executor_->Input(i).size() == given.bytes());
      if (!executor_->UseInput(i, given.data)) std::memcpy(executor_->Input(i).data(), given.data, given.bytes());
    }
    for (size_t i = 0; i < sources_.size(); ++i)
      if (!sources_[i].is_input) (void)executor_->UseOutput(sources_[i].at, PlaceOf(i, inputs, outputs));
    HONE_TRY(RunCalls());
    const Graph& graph = network_.graph;
    std::vector<TensorView> results;
    for (size_t i = 0; i < graph.outputs.size(); ++i)
      results.push_back(
          {graph.dtype(graph.outputs[i]), graph.shape(graph.outputs[i]), HONE_TRY(executor_->Output(i)).data()});
    return results;
  }

  Result<void> RunCalls() {
    if (!context_->shares->is_on) return executor_->Run();
    for (size_t i = 0; i < executor_->call_count(); ++i) {
      Stopwatch stopwatch;
      HONE_TRY(executor_->RunCalls(i, i + 1));
      context_->shares->Add(plan_.calls[i], stopwatch.Microseconds());
    }
    return {};
  }

  void Count(const std::string& label, const std::string& why, const Stopwatch& stopwatch) const {
    if (context_->shares->is_on) context_->shares->AddHost(label, why, stopwatch.Microseconds());
  }

  // The same.
  Result<std::vector<TensorView>> Interpret(const std::vector<TensorView>& inputs) {
    Stopwatch stopwatch;
    std::vector<TensorView> read;
    for (size_t i : read_) read.push_back(inputs[i]);
    interpreted_ = HONE_TRY(context_->is_plain ? ByDefinition(read) : EvaluateElements(network_.graph, read));
    network_.graph.ForgetElements();
    Count("small part", "it is little, and kernels for shapes met first would take longer", stopwatch);
    return interpreted_.outputs;
  }

  // In double precision throughout.
  Result<Evaluated> ByDefinition(const std::vector<TensorView>& read) {
    std::vector<Numbers> data;
    for (const TensorView& view : read) data.push_back(ToNumbers(view));
    const std::vector<Numbers> outputs = HONE_TRY(EvaluateNetwork(network_.graph, data));
    Evaluated evaluated;
    for (const Numbers& output : outputs) {
      const auto tensor = std::make_shared<const HostTensor>(ToHost(output, output.dtype));
      evaluated.outputs.push_back(ViewOf(*tensor));
      evaluated.memory.push_back(tensor);
    }
    return evaluated;
  }

  // Adds the model's other outputs to `known`.
  Result<void> RunRest(std::map<std::string, TensorView>& known) {
    std::map<std::string, TensorView> values = known;
    for (size_t i = 0; i < network_.rest.reads.size(); ++i)
      values[network_.rest.reads[i]] = results_[network_.outputs.size() + i];
    for (const OnnxTensor& tensor : network_.rest.constants) values[tensor.name] = ViewOf(*tensor.tensor);
    computed_.clear();
    for (const OnnxNode& node : apart_) {
      WorkShares& shares = *context_->shares;
      Stopwatch stopwatch;
      const double before = shares.total_us();  // a loop's body counts its own work
      std::vector<HostTensor> results = HONE_TRY(RunApart(node, values));
      if (shares.is_on)
        shares.AddHost(node.op,
                       IsLoop(node) ? "between the steps of its body" : "its results have a size when it has run",
                       stopwatch.Microseconds() - (shares.total_us() - before));
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (node.outputs[i].empty()) continue;
        if (i >= results.size())
          return Error{ErrorKind::kInvalid,
                       fmt::format("it has {} outputs, wanted {}", node.outputs.size(), results.size()), At(node)};
        computed_.push_back(std::move(results[i]));
        values[node.outputs[i]] = ViewOf(computed_.back());
      }
    }
    if (next_ == nullptr) next_ = HONE_TRY(MakeNext(values));
    std::vector<TensorView> inputs;
    for (const OnnxValue& input : next_->model_.inputs) inputs.push_back(values.at(input.name));
    std::vector<TensorView> outputs;
    if (!next_->model_.outputs.empty()) outputs = HONE_TRY(next_->Run(inputs));
    for (size_t i = 0; i < outputs.size(); ++i) known[next_->model_.outputs[i].name] = outputs[i];
    for (const OnnxValue& output : program_.model_.outputs)
      if (auto value = values.find(output.name); value != values.end()) known.emplace(output.name, value->second);
    return {};
  }

  Result<std::unique_ptr<Program>> MakeNext(const std::map<std::string, TensorView>& values) {
    PartModel next = ModelOfRest(program_.model_, network_.rest, std::move(waiting_), values);
    // All that decides is known already: it would wait for the same again, and so on.
    if (apart_.empty() && std::ranges::includes(program_.deciding_, next.deciding)) {
      waiting_ = std::move(next.model.nodes);
      return Error{ErrorKind::kUnsupported, "it cannot be taken, although what decides its shapes is known",
                   At(waiting_[0])};
    }
    return std::unique_ptr<Program>(
        new Program(std::move(next.model), std::move(next.deciding), program_.depth_ + 1, false, context_));
  }

  std::string At(const OnnxNode& node) const {
    return fmt::format("{}: node {} ({})", context_->path, node.name, node.op);
  }

  Result<std::vector<HostTensor>> RunApart(const OnnxNode& node, const std::map<std::string, TensorView>& values) {
    auto fail = [&](Error error) {
      if (error.where.find(context_->path) == std::string::npos) error.where = At(node);
      return error;
    };
    if (IsLoop(node)) {
      std::vector<TensorView> captured;
      Program* body = HONE_TRY(BodyOf(node, values, &captured));
      std::vector<std::optional<TensorView>> inputs;
      for (const std::string& name : node.inputs)
        inputs.push_back(name.empty() ? std::nullopt : std::optional(values.at(name)));
      Result<std::vector<HostTensor>> results = RunLoop(node, *body, inputs, captured);
      if (!results) return fail(results.error());
      return results;
    }
    std::vector<Numbers> numbers;
    std::vector<const Numbers*> arguments;
    numbers.reserve(node.inputs.size());
    for (const std::string& name : node.inputs) {
      if (!name.empty()) numbers.push_back(ToNumbers(values.at(name)));
      arguments.push_back(name.empty() ? nullptr : &numbers.back());
    }
    Result<std::vector<Numbers>> computed = FindDataShaped(OperatorName(node))->compute(node, arguments);
    if (!computed) return fail(computed.error());
    std::vector<HostTensor> results;
    for (const Numbers& each : *computed) results.push_back(ToHost(each, each.dtype));
    return results;
  }

  // The program of a loop's body: its own inputs, then what it reads from around it.
  Result<Program*> BodyOf(const OnnxNode& node, const std::map<std::string, TensorView>& values,
                          std::vector<TensorView>* captured) {
    const OnnxAttribute* attribute = FindAttribute(node, "body");
    if (attribute == nullptr || attribute->body == nullptr)
      return Error{ErrorKind::kInvalid, "it has no body", At(node)};
    const OnnxBody& body = *attribute->body;
    std::unique_ptr<Program>& program = bodies_[&body];
    if (program == nullptr)
      program =
          Program::ForBody(ModelOfBody(program_.model_, network_.rest, node, body), program_.depth_ + 1, context_);
    const std::vector<OnnxValue>& taken = program->model_.inputs;
    for (size_t i = body.inputs.size(); i < taken.size(); ++i) captured->push_back(values.at(taken[i].name));
    return program.get();
  }

  Program& program_;
  const std::shared_ptr<const ProgramContext> context_;
  const ProgramVersions::iterator place_;
  bool is_running_ = false;
  Network network_;
  CallPlan plan_;
  std::unique_ptr<Executor> executor_;
  std::vector<size_t> read_;  // of the program's inputs, those of the graph
  std::vector<Source> sources_;
  bool is_interpreted_ = false;
  int runs_ = 0;
  Evaluated interpreted_;
  std::list<HostTensor> computed_;   // apart
  std::vector<TensorView> results_;  // those of the network, and what the rest reads
  bool has_rest_ = false;
  std::vector<OnnxNode> apart_, waiting_;  // the latter until the program of them is made
  std::unique_ptr<Program> next_;
  std::map<const OnnxBody*, std::unique_ptr<Program>> bodies_;
};

Program::Program(OnnxModel model, std::shared_ptr<const ProgramContext> context)
    : Program(std::move(model), {}, 0, true, std::move(context)) {}

std::unique_ptr<Program> Program::ForBody(OnnxModel model, size_t depth,
                                          std::shared_ptr<const ProgramContext> context) {
  return std::unique_ptr<Program>(new Program(std::move(model), {}, depth, false, std::move(context)));
}

Program::Program(OnnxModel model, std::set<std::string> deciding, size_t depth, bool is_whole,
                 std::shared_ptr<const ProgramContext> context)
    : model_(std::move(model)),
      deciding_(std::move(deciding)),
      depth_(depth),
      is_whole_(is_whole),
      context_(std::move(context)) {}

Program::~Program() = default;

Result<ProgramVersion*> Program::VersionFor(const std::vector<TensorView>& inputs) {
  HONE_CHECK(inputs.size() == model_.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) model_.inputs[i].type.dtype = inputs[i].dtype;
  std::string key = KeyOf(model_, deciding_, inputs);
  auto found = versions_.find(key);
  const bool is_new = found == versions_.end();
  if (is_new || found->second.get() != last_) Release();
  if (is_new) {
    Stopwatch stopwatch;
    std::unique_ptr<ProgramVersion> stage = HONE_TRY(ProgramVersion::Create(*this, inputs));
    if (context_->shares->is_on) context_->shares->AddHost(kPreparing, kNewShapes, stopwatch.Microseconds());
    found = versions_.emplace(std::move(key), std::move(stage)).first;
  }
  last_ = found->second.get();
  last_->MoveToFront();
  if (is_new) ForgetOldVersions();
  return last_;
}

// But for those that run, and the one that is to run next: the results of all others have been read.
void Program::ForgetOldVersions() {
  auto are_too_many = [&] {
    if (context_->versions->size() > kMostVersions) return true;
    if (context_->client == nullptr) return false;
    const int64_t constants = context_->constants->bytes();
    return constants + context_->client->packed().bytes() > std::max(kMostConstantBytes, 3 * constants);
  };
  while (are_too_many()) {
    const ProgramVersions& all = *context_->versions;
    auto oldest = std::find_if(all.rbegin(), all.rend(), [&](const ProgramVersion* version) {
      return !version->is_running() && version != last_;
    });
    if (oldest == all.rend()) return;
    (*oldest)->program().Forget(*oldest);
  }
}

void Program::Forget(const ProgramVersion* version) {
  if (last_ == version) last_ = nullptr;
  std::erase_if(versions_, [&](const auto& one) { return one.second.get() == version; });
}

void Program::Release() {
  if (last_ != nullptr) last_->Release();
}

Result<std::vector<TensorView>> Program::Run(const std::vector<TensorView>& inputs, std::span<void* const> outputs) {
  ProgramVersion* stage = HONE_TRY(VersionFor(inputs));
  return stage->Run(inputs, outputs);
}

Result<std::vector<std::optional<TensorType>>> Program::Prepare(const std::vector<TensorView>& inputs,
                                                                std::shared_ptr<ModelFile> file) {
  ProgramVersion* stage = HONE_TRY(VersionFor(inputs));
  if (is_whole_) HONE_TRY(stage->MakeKernels(std::move(file)));
  return stage->OutputTypes();
}

}  // namespace hone
