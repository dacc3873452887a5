// The text form of schedules: every step reads back as it was printed, errors name their place, and no bytes whatever
// do more than give an error. Messages one by one: tests/errors/schedule/.
#include "ir/schedule/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "base/rng.h"

namespace hone::schedule_test {
namespace {

std::string ErrorOf(std::string_view text) {
  Result<Schedule> schedule = ParseSchedule(text);
  return schedule ? "no error" : schedule.error().Text();
}

// Lines as PrintSchedule writes them: each form of each step.
const std::vector<std::string>& PrintedSteps() {
  static const std::vector<std::string> lines = {
      "rewrite fuse_axes y h w",
      "rewrite cache_write y t",
      "rewrite max_ignore_nan top",
      "rewrite online_reduction total blocks 4096",
      "rewrite winograd t v 4 14",
      "rewrite im2col acc xp cols c r",
      "rewrite trim_padding acc xp whole r s",
      "inline xp",
      "cache_read w -> wp for t const",
      "cache_read w -> wp for t workspace",
      "cache_read w -> wp for t per_worker [c, o]",
      "cache_read w -> wp for t registers",
      "cache_read w -> wp for t const [o/32, c, o%32]",
      "store t block [c/64, h, c%64 swizzled]",
      "cache_read w -> wp for t const [o/32+1, c+16, o%32+8]",
      "rfactor t k 16 -> tr",
      "rfactor t k 16 of 4 -> tr",
      "split y.n 32",
      "split y.n 4 32",
      "split y.n.1 2 1 4",
      "split y.n 4294967296",
      "fuse y.n.0 y.m.0",
      "fuse y.n.0+m.0 y.h y.w0",
      "reorder y.n.0+m.0 y.m.1 y.n.1",
      "parallel y.n.0 grain=1",
      "parallel y.n.0 grain=4294967296",
      "vectorize y.n.2",
      "vectorize y.n.2 y.m.1",
      "unroll y.m.1",
      "unroll y.m.1 y.n.1 y.k",
      "compute_at t y.n.1",
      "compute_at t u.n.1 keep y.m",
      "store t workspace",
      "store t per_worker",
      "store t registers",
      "store t const",
      "store t per_worker [c, h+16]",
      "store t workspace [h%3, c, h/3]",
      "register_tile t.m.0",
      "tail y.m pad",
      "tail y.m guard",
      "tail y.m shift",
      "tail y.m peel",
      "prefetch x for t 4096",
      "prefetch x for t panel",
      "store t block",
      "rewrite shift_sign t x xs ts c",
      "rewrite pad_reduction t k a b 4",
      "tensorize vpdpbusd_512 t.k.1 t.n.1",
      "pipeline as 3",
      "bind y.m.1 block.z",
      "bind y.m.1 thread.x",
  };
  return lines;
}

TEST(Schedule, EveryStepReadsBackAsItWasPrinted) {
  std::set<size_t> seen;
  std::string all;
  for (const std::string& line : PrintedSteps()) {
    Result<Schedule> schedule = ParseSchedule(line);
    ASSERT_TRUE(schedule) << line << ": " << schedule.error().Text();
    ASSERT_EQ(schedule->size(), 1u) << line;
    EXPECT_EQ(PrintStep(schedule->front()), line);
    seen.insert(schedule->front().index());
    all += line + "\n";
  }
  EXPECT_EQ(seen.size(), std::variant_size_v<Step>) << "a kind of step has no example";
  Result<Schedule> schedule = ParseSchedule(all);
  ASSERT_TRUE(schedule) << schedule.error().Text();
  EXPECT_EQ(schedule->size(), PrintedSteps().size());
  EXPECT_EQ(PrintSchedule(*schedule), all);
  EXPECT_EQ(ParseSchedule(PrintSchedule(*schedule)).value(), *schedule);
}

TEST(Schedule, StepsWithOtherFieldsAreOtherSteps) {
  std::vector<Schedule> schedules;
  for (const std::string& line : PrintedSteps()) schedules.push_back(ParseSchedule(line).value());
  for (size_t i = 0; i < schedules.size(); ++i) {
    for (size_t j = 0; j < schedules.size(); ++j)
      EXPECT_EQ(schedules[i] == schedules[j], i == j) << PrintedSteps()[i] << " | " << PrintedSteps()[j];
  }
}

// What the words of a line become, step by step.
TEST(Schedule, ReadsFields) {
  auto reads = [](std::string_view line, const Step& step) {
    EXPECT_EQ(ParseSchedule(line).value().at(0), step) << line;
  };
  reads("rewrite fuse_axes y h w", RewriteStep{"fuse_axes", "y", {"h", "w"}});
  reads("rewrite winograd t v 4 14", RewriteStep{"winograd", "t", {"v"}, {4, 14}});
  reads("inline xp", InlineStep{"xp"});
  reads("cache_read w -> wp for t const [o/32, c+4, o%32]", CacheReadStep{"w",
                                                                          "wp",
                                                                          "t",
                                                                          Scope::kConst,
                                                                          {{"o", LayoutDim::Part::kQuotient, 32, 0},
                                                                           {"c", LayoutDim::Part::kWhole, 1, 4},
                                                                           {"o", LayoutDim::Part::kRemainder, 32, 0}}});
  reads("rfactor t k 16 -> tr", RfactorStep{"t", "k", 16, "tr"});
  reads("rfactor t k 16 of 4 -> tr", RfactorStep{"t", "k", 16, "tr", 4});
  reads("split y.n.0+m 4 32", SplitStep{"y", "n.0+m", {4, 32}});
  reads("fuse y.n.0 y.m.0", FuseStep{"y", {"n.0", "m.0"}});
  reads("reorder y.n y.m", ReorderStep{"y", {"n", "m"}});
  reads("parallel y.n", ParallelStep{"y", "n", 1});
  reads("parallel y.n grain=7", ParallelStep{"y", "n", 7});
  reads("vectorize y.n.2", VectorizeStep{"y", {"n.2"}});
  reads("unroll y.m.1 y.n.1", UnrollStep{"y", {"m.1", "n.1"}});
  reads("compute_at t y.n.1", ComputeAtStep{"t", "y", "n.1"});
  reads("compute_at t u.n.1 keep y.m", ComputeAtStep{"t", "u", "n.1", "y", "m"});
  reads(
      "store t workspace [c, h]",
      StoreStep{"t", Scope::kWorkspace, {{"c", LayoutDim::Part::kWhole, 1, 0}, {"h", LayoutDim::Part::kWhole, 1, 0}}});
  reads("register_tile t.m.0", RegisterTileStep{"t", "m.0"});
  reads("tail y.m shift", TailStep{"y", "m", Tail::kShift});
  reads("prefetch x for t 4096", PrefetchStep{"x", "t", 4096});
  reads("prefetch x for t panel", PrefetchStep{"x", "t", kNextPanel});
  reads("pipeline as 3", PipelineStep{"as", 3});
  reads("bind y.m.1 thread.y", BindStep{"y", "m.1", LaunchAxis::kThreadY});
}

// Stored texts are of any age: ir/steps/old_words.h.
TEST(Schedule, ReadsOldWordsAndWritesTodays) {
  const std::vector<std::pair<std::string, std::string>> words = {
      {"rewrite separate y t", "rewrite cache_write y t"},
      {"rewrite collapse y h w", "rewrite fuse_axes y h w"},
      {"rewrite expand acc xp cols c r", "rewrite im2col acc xp cols c r"},
      {"rewrite trim acc xp whole r s", "rewrite trim_padding acc xp whole r s"},
      {"rewrite numbers top", "rewrite max_ignore_nan top"},
      {"rewrite online total blocks 4096", "rewrite online_reduction total blocks 4096"},
      {"store t shared", "store t workspace"},
      {"store t private [c, h+16]", "store t per_worker [c, h+16]"},
      {"cache_read w -> wp for t shared", "cache_read w -> wp for t workspace"},
      {"cache_read w -> wp for t private [c, o]", "cache_read w -> wp for t per_worker [c, o]"},
      {"cache_write t at t.m.0", "register_tile t.m.0"},
  };
  std::string all_then = "# choices: y.rows=4\ncase M=1\n", all_now = all_then;
  for (const auto& [then, now] : words) {
    Result<Schedule> old = ParseSchedule(then);
    ASSERT_TRUE(old) << then << ": " << old.error().Text();
    EXPECT_EQ(*old, ParseSchedule(now).value()) << then;
    EXPECT_EQ(PrintSchedule(*old), now + "\n");
    all_then += then + "\n";
    all_now += now + "\n";
  }
  EXPECT_EQ(InWordsOfToday(all_then), all_now);
  EXPECT_EQ(InWordsOfToday(all_now), all_now);
  // Names of stages and axes are nobody's words.
  EXPECT_EQ(PrintSchedule(ParseSchedule("store shared private [online]").value()),
            "store shared per_worker [online]\n");
  EXPECT_EQ(InWordsOfToday("split shared.private 4 # rewrite separate y t"),
            "split shared.private 4 # rewrite separate y t");
  EXPECT_EQ(InWordsOfToday("# plain loops: refused\n\nno step\n"), "# plain loops: refused\n\nno step\n");
  EXPECT_EQ(InWordsOfToday(""), "");
}

// The word of the rewrite begins no line: there it is the step of once, which keeps a tile in registers.
TEST(Schedule, CacheWriteIsARewriteOrAnOldStep) {
  EXPECT_TRUE(std::holds_alternative<RewriteStep>(ParseSchedule("rewrite cache_write y t").value().at(0)));
  EXPECT_TRUE(std::holds_alternative<RegisterTileStep>(ParseSchedule("cache_write t at t.m.0").value().at(0)));
  EXPECT_EQ(ErrorOf("cache_write y t"), "schedule:1:15: saw \"t\", wanted \"at\"");
}

TEST(Schedule, SkipsCommentsBlankLinesAndSpace) {
  EXPECT_EQ(ParseSchedule("").value().size(), 0u);
  EXPECT_EQ(ParseSchedule("\n\n# nothing\n   \t\n").value().size(), 0u);
  EXPECT_EQ(ParseSchedule("  split\ty.n   4 32  # tile\r\n#unroll y.m\n\r\n\nunroll y.n.1").value(),
            ParseSchedule("split y.n 4 32\nunroll y.n.1\n").value());
  EXPECT_EQ(ParseSchedule("store t workspace [ m/4 ,n,m%4 ]").value(),
            ParseSchedule("store t workspace [m/4, n, m%4]").value());
}

TEST(Schedule, ErrorsNameLineAndColumn) {
  EXPECT_EQ(ErrorOf("split y.n 4\n\n# then\n  split y.m 4 0\n"),
            "schedule:4:15: saw \"0\", wanted a factor from 1 to 2^32");
  EXPECT_EQ(ErrorOf("split y.n 4\nsplit"), "schedule:2:6: saw the end of the line, wanted a loop, as stage.axis");
}

// Every beginning of every step is a step or an error with a place, and so is every step with a byte changed.
TEST(Schedule, DamagedStepsAreStepsOrErrors) {
  Rng rng(5);
  size_t refused = 0;
  auto check = [&](const std::string& text) {
    Result<Schedule> schedule = ParseSchedule(text);
    if (!schedule) {
      ++refused;
      EXPECT_TRUE(schedule.error().where.starts_with("schedule:1:")) << text << ": " << schedule.error().Text();
      return;
    }
    Result<Schedule> again = ParseSchedule(PrintSchedule(*schedule));
    ASSERT_TRUE(again) << text << ": " << again.error().Text();
    EXPECT_EQ(*again, *schedule) << text;
  };
  for (const std::string& line : PrintedSteps()) {
    for (size_t length = 0; length < line.size(); ++length) check(line.substr(0, length));
    for (int i = 0; i < 100; ++i) {
      std::string changed = line;
      char byte = static_cast<char>(rng.Below(256));
      changed[rng.Below(line.size())] = byte == '\n' ? ' ' : byte;
      check(changed);
    }
  }
  EXPECT_GT(refused, 1000u);
}

TEST(Schedule, RefusesBytesThatAreNoText) {
  for (std::string_view text : {std::string_view("split y.\xff\xfe 4"), std::string_view("spl\0it y.n 4", 12),
                                std::string_view("split\x01y.n 4"), std::string_view("inline \xc3\xa9")}) {
    Result<Schedule> schedule = ParseSchedule(text);
    ASSERT_FALSE(schedule);
    EXPECT_EQ(schedule.error().kind, ErrorKind::kInvalid);
    EXPECT_TRUE(schedule.error().where.starts_with("schedule:1:")) << schedule.error().where;
  }
}

// Messages go to terminals, logs and JSON.
TEST(Schedule, MessagesAreShortAndPrintable) {
  for (const std::string& text : {std::string("split y.\xff\xfe 4"), std::string("split\x01y.n 4"),
                                  std::string("split y.\x1b[31mred 4"), "split y." + std::string(100'000, 'n') + " x",
                                  std::string(200'000, 's'), "split y.n " + std::string(1000, '9')}) {
    std::string message = ErrorOf(text);
    EXPECT_LT(message.size(), 700u) << message.substr(0, 100) << "…";
    for (unsigned char byte : message) EXPECT_TRUE(byte >= 0x20 && byte < 0x7f) << message.substr(0, 100);
  }
}

TEST(Schedule, LimitsTextAndSteps) {
  Result<Schedule> long_line = ParseSchedule("split y.n " + std::string(1 << 20, '4'));
  ASSERT_FALSE(long_line);
  EXPECT_EQ(long_line.error().kind, ErrorKind::kLimit);
  EXPECT_EQ(long_line.error().Text(), "schedule: 1048586 bytes of schedule, at most 262144 are allowed");

  std::string steps;
  for (int i = 0; i < 2000; ++i) steps += "unroll y.n\n";
  EXPECT_EQ(ParseSchedule(steps).value().size(), 2000u);
  Result<Schedule> many = ParseSchedule(steps + "unroll y.n\n");
  ASSERT_FALSE(many);
  EXPECT_EQ(many.error().kind, ErrorKind::kLimit);
  EXPECT_EQ(many.error().Text(), "schedule:2001: more than 2000 steps");
}

}  // namespace
}  // namespace hone::schedule_test
