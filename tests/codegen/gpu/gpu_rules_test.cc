// Schedules by the rules for GPUs: they apply, and what comes of them is right and free of races.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "codegen/machine_model.h"
#include "codegen/rules/default_schedule.h"
#include "ir/graph/op_traits.h"
#include "tests/support/gpu_run.h"
#include "tests/support/operation_samples.h"

namespace hone {
namespace {

TEST(GpuRules, DefaultSchedulesOfAllOperations) {
  int with_block_storage = 0;
  for (const std::string& text : GpuSamples()) {
    const Plan plan = PlanSchedule(Specialize(ParseKernel(text).value()), SomeGpu(), {}).value();
    const GpuOutcome outcome = RunOnGpu(text, plan.schedule);
    EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text() << "\n" << PrintSchedule(plan.schedule);
    with_block_storage += outcome.report.barriers > 0;
  }
  EXPECT_GT(with_block_storage, 15);
}

GpuOutcome CountedByDefault(const std::string& text, size_t* launches = nullptr) {
  const Kernel kernel = Specialize(ParseKernel(text).value());
  const straight::Program program = StraightOf(text, DefaultSchedule(kernel, SomeGpu()).value()).value();
  if (launches != nullptr) *launches = program.launches.size();
  return RunStraight(text, program, {.count = true});
}

// Softmax and normalisations: however many statistics a row has, and whatever its length.
TEST(GpuRules, WhatARowNeedsIsComputedInOneLaunch) {
  for (const char* operation : {"softmax", "layer_norm", "rms_norm"}) {
    for (const char* sizes : {"M=1,N=1", "M=3,N=33", "M=5,N=77", "M=4,N=1000", "M=2,N=4096", "M=1,N=20000"}) {
      const std::string text = fmt::format("{}({})", operation, sizes);
      size_t launches = 0;
      const GpuOutcome outcome = CountedByDefault(text, &launches);
      EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text();
      EXPECT_EQ(launches, 1u) << text;
    }
  }
}

// Threads side by side read elements side by side: no sector of memory is touched for less than all that is in it, and
// none of x twice. Counted in one block, which has one row here.
TEST(GpuRules, RowsAreReadSideBySideAndOnce) {
  const int64_t sectors_of_a_row = 1024 * 4 / 32;
  EXPECT_EQ(CountedByDefault("softmax(M=8,N=1024)").report.global_sectors, 2 * sectors_of_a_row);
  EXPECT_EQ(CountedByDefault("layer_norm(M=8,N=1024)").report.global_sectors, 4 * sectors_of_a_row);
  // Partial results, fewer of them, and all threads add those up: twice. Elements of the row stay with their threads.
  EXPECT_EQ(CountedByDefault("softmax(M=8,N=1024)").report.barriers, 8 * 4);
  EXPECT_EQ(CountedByDefault("reduce_sum(M=8,N=1024)").report.global_sectors, sectors_of_a_row + 1);
}

// A matrix times one row is read once, in whole sectors, whichever way it lies: a sector for 8 floats, and what little
// there is beside it.
TEST(GpuRules, AMatrixTimesFewRowsIsReadSideBySide) {
  for (const char* text : {"dense(M=1,N=64,K=2048)", "dense(M=1,N=64,K=512,weights=i8,const=1)+bias",
                           "matmul(M=1,N=256,K=512)", "matmul(M=3,N=256,K=512)"}) {
    size_t launches = 0;
    const GpuOutcome outcome = CountedByDefault(text, &launches);
    EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text();
    EXPECT_EQ(launches, 1u) << text;
    EXPECT_GE(outcome.report.most_threads, 64) << text;
  }
  const int64_t row = 2048 * 4 / 32;
  EXPECT_EQ(CountedByDefault("dense(M=1,N=64,K=2048)").report.global_sectors, 2 * row + 1);
  EXPECT_EQ(CountedByDefault("dense(M=4,N=64,K=2048)").report.global_sectors, 5 * row + 4);
  // 32 columns of a block: four sectors of each of 512 rows, and as many loads of the vector as warps have rows.
  EXPECT_LE(CountedByDefault("matmul(M=1,N=256,K=512)").report.global_sectors, 512 * 4 + 512 + 4);
}

TEST(GpuRules, FewLongRowsAreReducedByManyBlocks) {
  for (const char* text : {"reduce_sum(M=1,N=100000)",
                           "kernel top(x: f32[N]) -> y: f32[1] where N=50001 "
                           "{ y[i] = max(n) x[n] }"}) {
    const GpuOutcome outcome = CountedByDefault(text);
    EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text();
    EXPECT_GE(outcome.report.blocks, 8) << text;
  }
}

// Numbers that no order of adding up may hide: rows of nothing but -inf, NaN among numbers, -inf among numbers.
TEST(GpuRules, RowsOfInfinitiesAndNaN) {
  const GpuOutcome outcome = CountedByDefault(R"(kernel masked(x: f32[M, N]) -> y: f32[M, N] where M=5, N=77 {
    t: f32[M, N]
    t[m, n] = if(m == 2, log(0.0 * abs(x[m, n])), if(m == 3 and n == 5, log(-1.0 - abs(x[m, n])),
                 if(n < 9, log(0.0), x[m, n])))
    top: f32[M]
    top[m] = max(n) t[m, n]
    e: f32[M, N]
    e[m, n] = exp(t[m, n] - top[m])
    total: f32[M]
    total[m] = sum(n) e[m, n]
    y[m, n] = e[m, n] / total[m]
  })");
  EXPECT_TRUE(outcome.IsRight()) << outcome.Text();
}

TEST(GpuRules, EveryFunctionOfFloats) {
  int functions = 0;
  for (const OpTraits& op : OpTable()) {
    if (op.notation != Notation::kFunction || op.takes != TypeSet::kFloats) continue;
    ++functions;
    for (const char* type : {"f32", "f64"}) {
      const std::string text =
          fmt::format("kernel f(x: {0}[N]) -> y: {0}[N] where N=997 {{ y[n] = {1}(x[n] * 50.0{2}) }}", type, op.name,
                      op.arity == 2 ? ", x[n] * 3.0" : "");
      const Kernel kernel = Specialize(ParseKernel(text).value());
      const GpuOutcome outcome = RunOnGpu(text, DefaultSchedule(kernel, SomeGpu()).value());
      EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text();
    }
  }
  EXPECT_GE(functions, 11);
}

TEST(GpuRules, CopiesThatABlockHasNoRoomForAreNotMade) {
  const std::string text = "conv2d(C=8,H=112,W=112,O=8,R=7,S=7,stride=2,pad=3)";
  const Kernel kernel = Specialize(ParseKernel(text).value());
  const Result<straight::Program> preferred = StraightOf(text, PlanSchedule(kernel, SomeGpu(), {}).value().schedule);
  ASSERT_FALSE(preferred);
  EXPECT_NE(preferred.error().Text().find("block storage"), std::string::npos) << preferred.error().Text();
  const Result<straight::Program> fitted = StraightOf(text, DefaultSchedule(kernel, SomeGpu()).value());
  EXPECT_TRUE(fitted) << fitted.error().Text();
}

// Depthwise convolutions and pooling: no copies and no barriers; what rows of a thread's tile read in common is loaded
// once.
TEST(GpuRules, WindowsAreReadWhereTheyLie) {
  for (const std::string text :
       {"depthwise_conv2d(C=2,H=40,W=40,R=3,S=3,pad=1)+bias+relu", "maxpool2d(C=2,H=40,W=40,R=3,S=3)"}) {
    const Kernel kernel = Specialize(ParseKernel(text).value());
    std::map<int64_t, int64_t> accesses;
    for (int64_t rows : {1, 4}) {
      const Chooser by_rows = [rows](const Choice& choice) {
        return choice.site.ends_with(".rows") ? rows : choice.preferred;
      };
      const Schedule schedule = PlanSchedule(kernel, SomeGpu(), by_rows).value().schedule;
      const GpuOutcome outcome = RunOnGpu(text, schedule, {}, {.count = true});
      EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text();
      EXPECT_EQ(outcome.report.barriers, 0) << text;
      accesses[rows] = outcome.report.global_accesses;
    }
    EXPECT_LT(3 * accesses[4], 2 * 4 * accesses[1]) << text;  // of a block, whose outputs are four times as many
  }
}

// Less than strict accuracy: three launches, and a fourth that transforms the filter, once.
TEST(GpuRules, ConvolutionsByWinograd) {
  for (const std::string text : {"conv2d(C=5,H=9,W=7,O=6,R=3,S=3,pad=1,const=1,accuracy=relaxed)+bias+add+relu",
                                 "conv2d(N=2,C=3,H=8,W=10,O=4,R=3,S=3,const=1,accuracy=relaxed)"}) {
    const Kernel kernel = Specialize(ParseKernel(text).value());
    for (int64_t m : {2, 4}) {
      const Chooser by_tiles = [m](const Choice& choice) {
        return choice.site.ends_with(".winograd") ? m : choice.preferred;
      };
      const Schedule schedule = PlanSchedule(kernel, SomeGpu(), by_tiles).value().schedule;
      const straight::Program program = StraightOf(text, schedule).value();
      EXPECT_EQ(program.launches.size(), 3u) << PrintSchedule(schedule);
      EXPECT_EQ(program.pack.size(), 1u) << PrintSchedule(schedule);
      const GpuOutcome outcome = RunStraight(text, program);
      EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text() << "\n" << PrintSchedule(schedule);
    }
  }
  // Many channels: by default.
  const char* large = "conv2d(C=256,H=14,W=14,O=256,R=3,S=3,pad=1,const=1,accuracy=relaxed)";
  EXPECT_NE(PrintSchedule(DefaultSchedule(Specialize(ParseKernel(large).value()), SomeGpu()).value()).find("winograd"),
            std::string::npos);
}

// What a choice may ask too much of a device for; anything else that is refused is the rules' fault.
bool ExceedsTheDevice(const std::string& refusal) {
  constexpr const char* kLimits[] = {"threads in a block, at most", "bytes of block storage, at most",
                                     "registers of a thread, with what else is there"};
  return std::ranges::any_of(kLimits, [&](const char* limit) { return refusal.find(limit) != std::string::npos; });
}

// With copies ahead: sums in parts, windows as columns, whatever sizes the tiles do not divide.
TEST(GpuRules, TilesWithCopiesAhead) {
  const Target target =
      DeviceTarget{std::string(kCudaKind),
                   {{"arch", "sm_80"}, {"block_bytes", "49152"}, {"block_threads", "256"}, {"units", "132"}}};
  const straight::DeviceLimits limits = straight::LimitsOf(ModelMachine(target));
  const char* texts[] = {"matmul(M=21,N=35,K=64)+bias",
                         "matmul(M=13,N=40,K=32,ta=1)",
                         "batch_matmul(B=2,M=9,N=17,K=32)",
                         "conv2d(C=16,H=5,W=5,O=9,R=3,S=3,stride=2,pad=1,const=1)+bias+add+relu",
                         "conv2d(C=8,H=4,W=5,O=5,R=3,S=3,pad=1,const=1)+bias",
                         "conv2d(C=4,H=5,W=6,O=6,R=3,S=2,groups=2,pad=1,dtype=f16)+bias"};
  std::map<std::string, int> steps = {{"pipeline ", 0}, {"split_reduction", 0}, {"flatten_axes", 0}, {"thread.z", 0}};
  Rng rng(7);
  for (const std::string text : texts) {
    const Kernel kernel = Specialize(ParseKernel(text).value());
    for (int trial = 0; trial < 5; ++trial) {
      const Chooser any = [&](const Choice& choice) {
        if (trial == 0 || choice.is_flag) return choice.preferred;
        const size_t options = choice.decision.grows_code ? (choice.options.size() + 1) / 2 : choice.options.size();
        return choice.options[static_cast<size_t>(rng.Below(options))];
      };
      const Schedule schedule = PlanSchedule(kernel, target, any).value().schedule;
      const GpuOutcome outcome = RunOnGpu(text, schedule, limits);
      if (trial > 0 && ExceedsTheDevice(outcome.refusal)) continue;
      EXPECT_TRUE(outcome.IsRight()) << text << ": " << outcome.Text() << "\n" << PrintSchedule(schedule);
      for (auto& [step, count] : steps) count += PrintSchedule(schedule).find(step) != std::string::npos;
    }
  }
  for (const auto& [step, count] : steps) EXPECT_GE(count, 4) << step;
}

// The operation that a kernel is of: what stands before its sizes.
std::string OperationOf(const std::string& text) { return text.substr(0, text.find('(')); }

// Distinct schedules of a kernel, by any decisions: at random, and when those bring nothing new, all that are left.
class Schedules {
 public:
  explicit Schedules(const std::string& text) : kernel_(Specialize(ParseKernel(text).value())) {}

  // nullopt: there are no more.
  std::optional<Schedule> Next(Rng& rng) {
    for (int again = 0; again < kStale; ++again) {
      const Chooser any = [&](const Choice& choice) {
        if (choice.is_flag && rng.Chance(0.95)) return int64_t{1};  // copies in block storage: what is to be tried
        return choice.options[static_cast<size_t>(rng.Below(choice.options.size()))];
      };
      if (std::optional<Schedule> fresh = Fresh(any)) return fresh;
    }
    while (!is_exhausted_) {
      size_t at = 0;
      std::vector<size_t> sizes;
      const Chooser next = [&](const Choice& choice) {
        sizes.push_back(choice.options.size());
        if (at == path_.size()) path_.push_back(0);
        return choice.options[path_[at++]];
      };
      std::optional<Schedule> fresh = Fresh(next);
      path_.resize(sizes.size());
      while (!path_.empty() && path_.back() + 1 == sizes[path_.size() - 1]) path_.pop_back();
      is_exhausted_ = path_.empty();
      if (!path_.empty()) ++path_.back();
      if (fresh) return fresh;
    }
    return std::nullopt;
  }

 private:
  static constexpr int kStale = 10;

  std::optional<Schedule> Fresh(const Chooser& chooser) {
    Plan plan = PlanSchedule(kernel_, SomeGpu(), chooser).value();
    if (!seen_.insert(PrintSchedule(plan.schedule)).second) return std::nullopt;
    return std::move(plan.schedule);
  }

  const Kernel kernel_;
  std::set<std::string> seen_;
  std::vector<size_t> path_;  // which option of each decision, in the order that they come up
  bool is_exhausted_ = false;
};

// Whose threads have nothing to share: each element is one thread's, or a few neighbours' whose cache has it.
const std::set<std::string> kShareNothing = {"add",          "avgpool2d", "gelu", "kernel moved", "kernel powers",
                                             "kernel waves", "maxpool2d", "mul",  "transpose"};

// Whatever the rules' decisions: legal, right, no race. 200 schedules of each operation, or all that there are; at
// least half have several threads share block storage, but of operations whose threads have nothing to share.
TEST(GpuRules, RandomSchedules) {
  std::vector<std::string> texts = GpuSamples();
  for (const std::string& text : LongRowSamples()) texts.push_back(text);
  std::map<std::string, std::vector<std::string>> operations;
  for (const std::string& text : texts) operations[OperationOf(text)].push_back(text);
  constexpr int kWanted = 200;
  int few = 0;
  Rng rng(24);
  for (const auto& [operation, samples] : operations) {
    std::vector<Schedules> left(samples.begin(), samples.end());
    std::vector<bool> ended(samples.size());
    int runs = 0, shared = 0;
    while (runs < kWanted && std::ranges::count(ended, false) > 0) {
      for (size_t i = 0; i < samples.size(); ++i) {
        const std::optional<Schedule> schedule = ended[i] ? std::nullopt : left[i].Next(rng);
        ended[i] = !schedule;
        if (!schedule) continue;
        const GpuOutcome outcome = RunOnGpu(samples[i], *schedule);
        if (ExceedsTheDevice(outcome.refusal)) continue;
        EXPECT_TRUE(outcome.IsRight()) << samples[i] << ": " << outcome.Text() << "\n" << PrintSchedule(*schedule);
        ++runs;
        shared += outcome.report.barriers > 0 && outcome.report.most_threads > 1;
      }
    }
    EXPECT_TRUE(runs >= kWanted || std::ranges::count(ended, false) == 0) << operation << ": " << runs;
    if (kShareNothing.contains(operation))
      EXPECT_EQ(shared, 0) << operation;
    else
      EXPECT_GE(2 * shared, runs) << operation;
    few += runs < kWanted;
  }
  EXPECT_GE(operations.size(), 19u);
  EXPECT_LE(few, 9);  // that is all there are of them
}

}  // namespace
}  // namespace hone
