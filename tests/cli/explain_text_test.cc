// What people read of a search, from made-up data: it fits the terminal, and says what the numbers say.
#include "client/cli/explain_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "client/cli/roofline_bound.h"
#include "client/cli/text_layout.h"
#include "client/cli/text_plot.h"

namespace hone::cli {
namespace {

ExplainReply Sample() {
  ExplainReply reply;
  reply.row.fingerprint = "0123456789abcdef0123456789abcdef";
  reply.row.kernel = "conv2d(N=1,C=64,H=56,W=56,O=64,R=3,S=3,stride=1,pad=1,const=1,threads=1)+bias+relu";
  reply.row.class_name = "conv2d+bias+relu";
  reply.row.origin = "tuned";
  reply.threads = 1;
  reply.reasons = {{"schedule", "the best that tuning found on this machine"},
                   {"check", "compared with the reference at every element, off by at most 1.9e-07 of the scale"}};
  reply.roofline = {2e8, 1e6, 1250, "measured", 200, 100, "L2"};
  reply.default_us = 2500;
  reply.won_ratio = 2;
  reply.idle_ratio = 1.5;
  reply.trials = 256;
  reply.verdicts = {{"timed", 250}, {"not built", 6}};
  reply.history = {{1, 2500, 1}, {40, 1600, 2}, {200, 1250, 3}};
  reply.space_size = 3.2e9;
  reply.choices = {
      {"acc.vectors", "vectors of the register tile", false, 4, 2, {1, 2, 3, 4}, 1.21, 1.3, 12, 238, 1.15},
      {"acc.direct", "the vector operand is read where it lies, not packed", true, 1, 0, {0, 1}, 0, 0.98, 3, 247, 0},
      {"acc.rows", "rows of the register tile", false, 6, 6, {1, 2, 3, 4, 5, 6, 7, 8}, 1.07, 0, 0, 0, 0}};
  reply.rules = {{"winograd", "acc", false, "only accuracy=relaxed admits it"},
                 {"contraction", "acc", true, "a register tile over two operands that are used again"}};
  return reply;
}

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(ExplainText, FitsTheTerminal) {
  ExplainReply untried = Sample();
  untried.trials = 0;
  untried.roofline.time_us = 0;
  for (size_t columns : {50, 60, 80, 120, 200}) {
    for (const std::string& line : Lines(ExplainText(Sample(), columns) + ExplainText(untried, columns)))
      EXPECT_LE(Width(line), columns) << "at " << columns << ": " << line;
  }
}

TEST(ExplainText, SaysWhatTheNumbersSay) {
  std::string text = ExplainText(Sample(), 200);
  for (const char* words :
       {"200 MFLOP over 976.6 KiB", "bound by    arithmetic", "80 % of the bound", "160 GFLOP/s",
        "256: 250 timed, 6 not built", "default schedule 2.50 ms, best trial 1.25 ms, 2.00x",
        "2.00x faster than before", "1.50x of it found in idle time", "2 -> 4", "1.21x", "no -> yes",
        "about 3.2e+09 schedules by 3 decisions", "6 of 8 options from 1 to 8", "otherwise 1.07x alone",
        "- winograd did not take acc: only accuracy=relaxed", "+ contraction took acc"})
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  EXPECT_EQ(text.find('\033'), std::string::npos);
}

ExplainReply Transferred() {
  ExplainReply reply = Sample();
  reply.row.origin = "transferred";
  const std::string donor = "conv2d(N=1,C=128,H=28,W=28,O=128,R=3,S=3,stride=1,pad=1,const=1,threads=1)+bias+relu";
  reply.transfer.confidence = 0.71;
  reply.transfer.guesses = {
      {"default", "", "", false, 0, 0.81, 0, false, 0, ""},
      {"steps", std::string(32, 'a'), donor, true, 1.25, 0.93, 812, true, 2, ""},
      {"decisions", std::string(32, 'b'), donor, false, 3, 0.5, 0, false, 0, "the same program as another guess"}};
  reply.transfer.notes = {
      {"kept", "vectorize t5.i1.1", "vectorize t5.i1.1", ""},
      {"changed", "split t4.i3 14", "split t4.i3 7", "2 tiles of 14 would compute 33 % too much of 21"},
      {"dropped", "rewrite fuse_axes t4 i2 i3", "", "i2 and i3 are not adjacent in memory"}};
  reply.recipients = {"conv2d(C=32,H=7,W=7,O=32,R=3,S=3,pad=1,const=1)+bias+relu"};
  return reply;
}

TEST(ExplainText, TellsTheProvenanceOfATransfer) {
  const std::string text = ExplainText(Transferred(), 200);
  for (const char* words :
       {"3 schedules were considered; confidence in the one that was served 0.71 of 1",
        "* by steps of aaaaaaaa conv2d(N=1,C=128", "distance 1.2, 2 changed, expected 0.93x, measured 812 us",
        "- the default schedule: expected 0.81x", "1 left out: the same program as another guess",
        "changed: split t4.i3 14 -> split t4.i3 7 (2 tiles of 14 would compute 33 % too much of 21)",
        "dropped: rewrite fuse_axes t4 i2 i3 (i2 and i3", "served with fits of this kernel's schedule"})
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  EXPECT_LT(text.find("* by steps"), text.find("- the default")) << "what is served comes first";
  for (size_t columns : {50, 60, 80, 120, 200})
    for (const std::string& line : Lines(ExplainText(Transferred(), columns)))
      EXPECT_LE(Width(line), columns) << "at " << columns << ": " << line;
  EXPECT_EQ(ExplainText(Sample(), 200).find("Transfer"), std::string::npos);
}

TEST(ExplainText, WithoutTrialsItSaysHowToGetThem) {
  ExplainReply reply = Sample();
  reply.trials = 0;
  reply.history.clear();
  reply.choices.pop_back();
  for (ChoiceRow& row : reply.choices) row.value = row.preferred;
  std::string text = ExplainText(reply, 80);
  EXPECT_NE(text.find("hone tune"), std::string::npos);
  EXPECT_NE(text.find("nothing: it is what the rules prefer"), std::string::npos);
}

TEST(ExplainText, SaysPlainlyThatNothingWasMeasured) {
  ExplainReply reply = Sample();
  reply.roofline.time_us = 0;
  reply.roofline.time_from = "";
  std::string text = ExplainText(reply, 120);
  EXPECT_NE(text.find("never measured"), std::string::npos) << text;
  EXPECT_EQ(text.find("of the bound"), std::string::npos) << text;
}

TEST(ExplainText, AnotherMachinesRecordHasNoBound) {
  ExplainReply reply = Sample();
  reply.roofline.peak_gflops = reply.roofline.read_gb_s = 0;
  EXPECT_EQ(BoundOf(reply.roofline), std::nullopt);
  EXPECT_NE(ExplainText(reply, 80).find("not known"), std::string::npos);
}

TEST(ExplainText, JsonHasTheSame) {
  auto json = nlohmann::json::parse(ExplainJson(Sample()).Dump());
  EXPECT_EQ(json["roofline"]["bound_by"], "arithmetic");
  EXPECT_DOUBLE_EQ(json["roofline"]["share"], 0.8);
  EXPECT_EQ(json["history"].size(), 3u);
  EXPECT_EQ(json["choices"][0]["decision"], "acc.vectors");
  EXPECT_EQ(json["choices"][0]["changed"], true);
  EXPECT_EQ(json["choices"][2]["changed"], false);
  EXPECT_EQ(json["choices"][0]["options"][3], 4);
  EXPECT_EQ(json["rules"][0]["applied"], false);
  EXPECT_EQ(json["verdicts"]["not_built"], 6);
  EXPECT_EQ(json["reasons"]["schedule"], "the best that tuning found on this machine");
}

TEST(RooflineBound, IsTheHigherRoof) {
  Roofline roofline{2e8, 1e6, 2000, "", 200, 100, ""};  // 1000 us of arithmetic, 10 us of reading
  std::optional<Bound> bound = BoundOf(roofline);
  ASSERT_TRUE(bound);
  EXPECT_DOUBLE_EQ(bound->us, 1000);
  EXPECT_FALSE(bound->is_memory);
  EXPECT_DOUBLE_EQ(bound->share, 0.5);
  roofline.read_gb_s = 0.5;  // now 2000 us
  bound = BoundOf(roofline);
  EXPECT_TRUE(bound->is_memory);
  EXPECT_DOUBLE_EQ(bound->share, 1);
}

TEST(CurveText, FallsFromTopToBottomAndFits) {
  std::string curve = CurveText(Sample().history, 256, 78, 8);
  std::vector<std::string> lines = Lines(curve);
  ASSERT_EQ(lines.size(), 10u);
  for (const std::string& line : lines) EXPECT_LE(Width(line), 78u);
  EXPECT_TRUE(lines[0].starts_with("2.50 ms |*")) << curve;
  EXPECT_TRUE(lines[7].starts_with("1.25 ms |")) << curve;
  EXPECT_TRUE(lines[7].ends_with("*")) << curve;
  EXPECT_EQ(lines[7].size(), lines[8].size()) << curve;  // the last trial is at the right edge
  EXPECT_TRUE(lines[9].ends_with("256")) << curve;
  EXPECT_NE(lines[3].find(':'), std::string::npos) << curve;
}

TEST(CurveText, NothingToDrawIsNothing) {
  EXPECT_EQ(CurveText({}, 10, 78, 8), "");
  EXPECT_EQ(CurveText({{1, 5, 0}}, 1, 78, 8), "");
  EXPECT_NE(CurveText({{1, 5, 0}}, 10, 78, 8), "");  // nothing better was found: a flat line
}

}  // namespace
}  // namespace hone::cli
