#include "tests/support/devices/scripted_device.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "backends/registry.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "codegen/lower/lower.h"
#include "codegen/rules/plan_cases.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/specialize.h"
#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "ir/schedule/apply.h"
#include "ir/schedule/schedule_cases.h"

namespace hone::testing {
namespace {

// artifact ::= "scripted 1\n" manifest:string is_default:bool schedule:string
constexpr std::string_view kMagic = "scripted 1\n";

struct Program {
  Manifest manifest;
  bool is_default = false;
  std::string schedule;

  double Us() const {
    const Result<Target> target = ParseTarget(manifest.target);
    return ScriptedUs(schedule, is_default,
                      target && target->device() ? static_cast<double>(*target->device()->Number("speed")) : 1);
  }
};

std::string Encode(const Program& program) {
  ByteWriter out;
  out.String(EncodeManifest(program.manifest));
  out.Bool(program.is_default);
  out.String(program.schedule);
  return std::string(kMagic) + out.Take();
}

Result<Program> Decode(std::span<const std::byte> bytes) {
  std::string_view text = AsText(bytes);
  if (!text.starts_with(kMagic)) return Error{ErrorKind::kCorrupt, "not a scripted program", "artifact"};
  ByteReader in(text.substr(kMagic.size()));
  Program program;
  program.manifest = HONE_TRY(DecodeManifest(AsBytes(HONE_TRY(in.String(1 << 20)))));
  program.is_default = HONE_TRY(in.Bool());
  program.schedule = HONE_TRY(in.String(1 << 20));
  HONE_TRY(in.Finish());
  if (KindOfTarget(program.manifest.target) != kScriptedKind)
    return Error{ErrorKind::kUnsupported, "a program for another kind of device", "artifact"};
  return program;
}

Result<Program> Open(const SealedMemfd& artifact) {
  ReadOnlyMapping mapping = HONE_TRY(artifact.Map());
  return Decode(mapping.bytes());
}

Result<Program> Compile(const BuildRequest& request) {
  Kernel kernel = HONE_TRY(ParseKernel(request.kernel));
  Program program;
  program.manifest.kernel = Canonicalize(kernel).text;
  program.manifest.target = PrintTarget(request.target);
  program.manifest.accuracy = kernel.options.accuracy;
  for (TensorId id : kernel.operands) {
    const Tensor& tensor = kernel.tensors[id];
    ManifestOperand operand;
    operand.name = tensor.name;
    operand.dtype = tensor.dtype;
    operand.is_output = tensor.kind == TensorKind::kOutput;
    operand.is_const = tensor.is_const;
    for (const Expr& extent : tensor.shape)
      operand.shape.push_back({UpperExtent(kernel, extent), UpperExtent(kernel, extent), -1});
    program.manifest.operands.push_back(std::move(operand));
  }
  kernel = Specialize(std::move(kernel));
  const ScheduleCases by_default = HONE_TRY(PlanCases(kernel, request.target, false));
  ScheduleCases cases = request.schedule.empty() ? by_default : HONE_TRY(ParseScheduleCases(request.schedule));
  for (ScheduleCase& scheduled : cases.cases) {
    scheduled.choices.clear();
    HONE_TRY(Lower(HONE_TRY(ApplySchedule(kernel, scheduled.steps))));
  }
  program.is_default = cases == by_default;
  program.schedule = PrintScheduleCases(cases);
  return program;
}

Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options) {
  const Program program = HONE_TRY(Open(artifact));
  CheckReport report;
  report.samples = 1;
  report.full = options.full;
  report.first_run_us = 2 * program.Us();
  report.time_us = options.timed_runs > 0 ? program.Us() : 0;
  return report;
}

std::atomic<double> slower{1};
std::atomic<int> timings{0};

class Pools : public WorkerPools {
 public:
  Result<std::unique_ptr<Reference>> Prepare(const std::string&, const Target&, Deadline,
                                             const std::stop_token&) override {
    struct Scripted : Reference {
      Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options, Deadline) override {
        return testing::Check(artifact, options);
      }
    };
    return std::unique_ptr<Reference>(std::make_unique<Scripted>());
  }
  Result<std::unique_ptr<Evaluator>> MakeEvaluator(const std::string& kernel, const Target& target,
                                                   const std::stop_token&) override {
    return std::unique_ptr<Evaluator>(std::make_unique<ScriptedEvaluator>(kernel, target));
  }
  Result<BuiltArtifact> Build(const BuildRequest& request, Deadline, const std::stop_token&) override {
    return BuildHere(request);
  }
  Result<std::string> Explain(const BuildRequest& request, Deadline, const std::stop_token&) override {
    return HONE_TRY(Compile(request)).schedule;
  }
  BuilderPoolStats BuilderStats() const override { return {}; }
  RunnerPoolStats RunnerStats() const override { return {}; }
  void Pause() override {}
  void Resume() override {}
  void Shutdown() override {}

 private:
  static Result<BuiltArtifact> BuildHere(const BuildRequest& request) {
    Program program = HONE_TRY(Compile(request));
    const std::string bytes = Encode(program);
    BuiltArtifact built;
    built.object = HONE_TRY(SealedMemfd::Create(AsBytes(bytes)));
    const Digest256 digest = Hash256(bytes);
    built.digest.assign(reinterpret_cast<const char*>(digest.data()), digest.size());
    built.schedule = std::move(program.schedule);
    built.manifest = std::move(program.manifest);
    return built;
  }

  class ScriptedEvaluator : public Evaluator {
   public:
    ScriptedEvaluator(std::string kernel, Target target) : kernel_(std::move(kernel)), target_(std::move(target)) {}
    int builders() const override { return 1; }
    Result<BuiltArtifact> Build(const std::string& schedule) override {
      return BuildHere({kernel_, schedule, target_});
    }
    Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options) override {
      return testing::Check(artifact, options);
    }
    Result<RunTiming> Time(const SealedMemfd& artifact, const TimeOptions& options) override {
      ++timings;
      RunTiming timing;
      timing.median_us = timing.min_us = HONE_TRY(Open(artifact)).Us() * slower;
      timing.samples = options.samples;
      timing.calls_per_sample = 1;
      timing.workers = options.workers;
      timing.protocol = "scripted";
      return timing;
    }

   private:
    const std::string kernel_;
    const Target target_;
  };
};

std::atomic<int> copies{0};

class Scripted : public Backend {
 public:
  const DeviceKind& kind() const override { return kind_; }
  Result<std::vector<Device>> Probe() const override {
    auto device = [&](int number, const char* speed) {
      return Device{fmt::format("{}:{}", kind_.name, number),
                    DeviceTarget{kind_.name, {{"model", "toy"}, {"speed", speed}}}};
    };
    Device old{kind_.name + ":old", DeviceTarget{kind_.name, {{"speed", "1"}, {std::string(kUncheckedFact), "old"}}}};
    return std::vector<Device>{device(0, "1"), device(1, "4"), std::move(old)};
  }
  Result<Target> Accept(const Target& asked, std::span<const Device> devices) const override {
    for (const Device& device : devices) {
      HONE_CHECK(IsChecked(device.target));
      if (device.target == asked) return asked;
    }
    return Error{ErrorKind::kUnsupported, "this machine has no such toy", "target"};
  }
  Result<std::string> CompilerName(const std::string&) const override { return std::string("script 1"); }
  Result<Manifest> OpenArtifact(std::span<const std::byte> bytes, uint64_t size) const override {
    if (size != 0 && bytes.size() != size) return Error{ErrorKind::kInvalid, "of another size", "artifact"};
    return HONE_TRY(Decode(bytes)).manifest;
  }
  Result<std::unique_ptr<WorkerPools>> StartPools(const WorkerPoolsOptions&) const override {
    return std::unique_ptr<WorkerPools>(std::make_unique<Pools>());
  }
  MachinePeaks MeasurePeaks(const Target& target, int) const override {
    return {.gflops = static_cast<double>(target.device()->Number("speed").value_or(0)), .read_gb_s = {8, 4, 2, 1}};
  }
  Result<CopySpeed> MeasureCopies(const Target&) const override {
    const double slower = 1 << copies++;
    return CopySpeed{16 / slower, 8 / slower, 2 * slower, 4 * slower};
  }

 private:
  const DeviceKind kind_{std::string(kScriptedKind), [](const Target&) { return ModelCpu(CpuTarget{}); }, &kCpuRules};
};

[[maybe_unused]] const bool is_registered = [] {
  HONE_CHECK(AddBackend(std::make_unique<Scripted>()));
  return true;
}();

}  // namespace

void SlowScriptedDown(double times) {
  slower = times;
  timings = 0;
}
int ScriptedTimings() { return timings; }
int ScriptedCopies() { return copies; }

double ScriptedUs(std::string_view schedule, bool is_default, double speed) {
  uint64_t hash = 0;
  const Digest64 digest = Hash64(schedule);
  std::memcpy(&hash, digest.data(), sizeof hash);
  return (is_default ? 100 : 50 + static_cast<double>(hash % 100)) / speed;
}

}  // namespace hone::testing
