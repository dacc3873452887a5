// Every scheduling rule says why it took a stage or left it, and every decision is explained: what `hone explain`
// tells.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "codegen/rules/default_schedule.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "tests/support/operation_samples.h"

namespace hone {
namespace {

Target Avx2() { return *ParseTarget("avx2 cpu=haswell l1=32768 l2=262144 l3=8388608 cores=2"); }

Plan PlanOf(const std::string& text, const Target& target, const Chooser& chooser = {}) {
  Result<Kernel> kernel = ParseKernel(text);
  EXPECT_TRUE(kernel) << text << ": " << kernel.error().Text();
  if (!kernel) return {};
  Result<Plan> plan = PlanSchedule(Specialize(*std::move(kernel)), target, chooser);
  EXPECT_TRUE(plan) << text << ": " << plan.error().Text();
  return plan ? *std::move(plan) : Plan{};
}

std::string Text(const std::vector<RuleNote>& notes) {
  std::string text;
  for (const RuleNote& note : notes)
    text += (note.applied ? "+ " : "- ") + note.rule + " " + note.stage + ": " + note.why + "\n";
  return text;
}

struct Case {
  const char* kernel;
  const char* choices;             // "" is the default schedule
  std::vector<std::string> notes;  // as Text writes them; those of the rules in question
};

const Case kCases[] = {
    {"matmul(M=64,N=64,K=64)",
     "",
     {"- winograd y: not a 3x3 convolution with stride 1",
      "+ contraction y: a register tile over two operands that are used again"}},
    {"matmul(M=64,N=64,K=64)",
     "y.rule=2",
     {"- contraction y: left out by a choice of the search", "- window y: left out by a choice of the search",
      "+ rows y: reductions along rows; what a row needs in between stays in the cache"}},
    {"dense(M=1,N=1000,K=512)",
     "",
     {"- contraction y: a matrix times a vector uses nothing twice; packing pays for constants with short rows",
      "- window y: it reduces over more than a small window", "+ rows y: "}},
    {"dense(M=64,N=64,K=64,const=1,dtype=bf16)",
     "",
     {"+ widen acc: no instruction multiplies its operands: the arithmetic is that of f32", "+ contraction "}},
    {"dense(M=1,N=1000,K=64,const=1)", "", {"+ contraction y: a register tile over two operands that are used again"}},
    {"kernel dot(x: f32[N], y: f32[N]) -> z: f32[M] where N=64, M=1 { z[i] = sum(k) x[k] * y[k] }",
     "",
     {"- contraction z: a single sum: nothing is used twice",
      "- window z: nothing is read along the last axis of the output"}},
    {"softmax(M=64,N=64)",
     "",
     {"- winograd total: not a 3x3 convolution with stride 1",
      "- contraction total: not a sum over the product of two tensors that are read plainly",
      "- window total: what a vector would read lies far apart in memory", "+ rows y: "}},
    {"softmax(M=2,N=200000)",
     "",
     {"+ online total: with top, which it needs, in one pass over the row: in blocks that stay in the cache",
      "+ rows y: reductions along rows"}},
    {"softmax(M=1,N=200000)",
     "",
     {"+ online total: ", "+ rows y: reductions along rows, which are divided among workers"}},
    {"softmax(M=64,N=1000)", "", {"- online total: the row stays in the cache from pass to pass", "+ rows y: "}},
    {"softmax(M=640,N=100)", "", {"+ prefetch y: the operands come from beyond the second-level cache", "+ rows y: "}},
    {"softmax(M=64,N=1000)", "y.online=256", {"+ online total: with top, which it needs", "+ rows y: "}},
    {"layer_norm(M=64,N=768)", "y.online=256", {"+ online squares: with total, which it needs", "+ rows y: "}},
    {"softmax(M=2,N=200000)",
     "y.online=0",
     {"- online total: left out by a choice of the search",
      "- rows y: what a row needs in between is more than the second-level cache holds",
      "+ elementwise y: each element on its own: vectors along the last axis"}},
    {"transpose(M=64,N=32)",
     "",
     {"- rows y: nothing that feeds it reduces along rows",
      "+ transpose y: an operand is contiguous along another axis than the output"}},
    {"add(M=7,N=9)",
     "",
     {"- transpose y: less than two axes", "+ elementwise y: each element on its own: vectors along the last axis"}},
    {"maxpool2d(C=8,H=28,W=28,R=3,S=3,stride=2,pad=1)",
     "",
     {"- winograd y: not a 3x3 convolution with stride 1",
      "+ window y: a small window, rows of the output side by side in registers, over a padded copy"}},
    {"maxpool2d(C=8,H=28,W=28,R=3,S=3,stride=2,pad=1)",
     "y.masked=1",
     {"+ window y: a small window, rows of the output side by side in registers, padding by masks"}},
    {"conv2d(C=32,H=28,W=28,O=32,R=3,S=3,pad=1,const=1)",
     "",
     {"- winograd y: only accuracy=relaxed admits it",
      "+ contraction y: a register tile over two operands that are used again, transposed on its way out"}},
    {"conv2d(C=32,H=28,W=28,O=32,R=3,S=3,pad=1,const=1,accuracy=relaxed)",
     "",
     {"+ winograd y: F(4x4,3x3): 4 times fewer products"}},
    {"conv2d(C=32,H=28,W=28,O=32,R=3,S=3,pad=1,const=1,accuracy=relaxed)",
     "y.winograd=2",
     {"+ winograd y: F(2x2,3x3): 2.25 times fewer products"}},
    {"conv2d(C=32,H=28,W=28,O=32,R=3,S=3,pad=1,const=1,accuracy=relaxed)",
     "y.winograd=0",
     {"- winograd y: left out by a choice of the search", "+ contraction y: "}},
    {"conv2d(C=32,H=28,W=28,O=32,R=3,S=3,pad=1,accuracy=relaxed)",
     "",
     {"- winograd y: the filter is not a constant of this stage alone: it would be transformed on every call",
      "- rows xp: nothing that feeds it reduces along rows",
      "- transpose xp: every operand is contiguous along the output's last axis, or along none", "+ elementwise xp: "}},
    {"conv2d(C=32,H=28,W=28,O=32,R=3,S=3,stride=2,pad=1,const=1,accuracy=relaxed)",
     "",
     {"- winograd y: a window with strides or dilation, or of more dimensions"}},
    {"conv2d(C=2,H=28,W=28,O=2,R=3,S=3,pad=1,const=1,accuracy=relaxed)",
     "",
     {"- winograd y: the transforms would cost more than the products that they save"}},
};

// Asked for by the first pass over the row that reads it, where it is large and by vectors.
TEST(RuleNotes, OperandsBeyondTheSecondLevelCacheAreFetchedAhead) {
  auto prefetches = [](const std::string& text, const std::string& choices) {
    std::string found;
    for (const Step& step : PlanOf(text, Avx2(), *ParseChoices(choices)).schedule)
      if (std::holds_alternative<PrefetchStep>(step)) found += PrintStep(step) + "\n";
    return found;
  };
  EXPECT_EQ(prefetches("softmax(M=640,N=100)", ""), "prefetch x for top_lanes 4096\n");
  EXPECT_EQ(prefetches("softmax(M=640,N=100)", "y.prefetch=1024"), "prefetch x for top_lanes 1024\n");
  EXPECT_EQ(prefetches("softmax(M=640,N=100)", "y.prefetch=0"), "");
  EXPECT_EQ(prefetches("softmax(M=64,N=100)", ""), "") << "it stays in the cache";
  EXPECT_EQ(prefetches("layer_norm(M=640,N=100)", ""), "prefetch x for total_lanes 4096\n") << "not the scales";
  const std::string large = "dense(M=64,N=512,K=512,const=1)";
  EXPECT_EQ(prefetches(large, ""), "prefetch w_panel for tile panel\n");
  EXPECT_EQ(prefetches("dense(M=64,N=512,K=5120,const=1)", ""), "prefetch w_panel for tile 4096\n")
      << "no room for two of its panels";
  for (const Choice& choice : PlanOf(large, Avx2()).choices)
    EXPECT_FALSE(choice.site.ends_with(".prefetch")) << "not left to a search, which finds constants in the cache";
  EXPECT_EQ(prefetches("dense(M=64,N=64,K=64,const=1)", ""), "") << "they stay in the cache";
}

// Windows of bytes, where an instruction sums products of their rows and masks have registers of their own.
TEST(RuleNotes, WindowsOfBytesByAnInstruction) {
  auto instruction = [](const std::string& text, const std::string& target) {
    for (const Step& step : PlanOf(text, *ParseTarget(target), *ParseChoices("")).schedule)
      if (const auto* tensorize = std::get_if<TensorizeStep>(&step)) return tensorize->instruction;
    return std::string("none");
  };
  const std::string vnni = "avx512 cpu=generic features=avx512vnni", of_28 = "depthwise_conv2d(C=8,H=28,W=28,R=3,S=3,";
  EXPECT_EQ(instruction(of_28 + "pad=1,const=1,dtype=u8)+bias", vnni), "vpdpbusd_512");
  EXPECT_EQ(instruction(of_28 + "pad=1,stride=2,const=1,dtype=i8)", vnni), "vpdpbusd_512");
  EXPECT_EQ(instruction(of_28 + "pad=1,const=1,dtype=u8)", "avx512 cpu=generic"), "vpmaddwd_u8_512");
  EXPECT_EQ(instruction(of_28 + "pad=1,const=1,dtype=u8)", "avx2 cpu=generic features=avxvnni"), "none");
  EXPECT_EQ(instruction(of_28 + "pad=1,dtype=u8)", vnni), "none") << "weights that are no constant";
  EXPECT_EQ(instruction("depthwise_conv2d(N=1..4,C=8,H=28,W=28,R=3,S=3,pad=1,const=1,dtype=u8)", vnni), "vpdpbusd_512");
  EXPECT_EQ(instruction("kernel k(x: u8[N], const w: i8[3]) -> y: i32[N] where N=20..40 { p: u8[N + 2] "
                        "p[i] = pad(x[i - 1], 0) y[m] = sum(k) p[m + k] * w[k] }",
                        vnni),
            "none")
      << "a row of a length that is not known";
  EXPECT_EQ(instruction(of_28 + "dilation=2,pad=1,const=1,dtype=u8)", vnni), "none") << "elements lie apart";
  EXPECT_EQ(instruction("depthwise_conv2d(C=8,H=7,W=7,R=3,S=3,pad=1,const=1,dtype=u8)", vnni), "none") << "few lanes";
  EXPECT_EQ(instruction("depthwise_conv2d(C=8,H=14,W=14,R=3,S=3,stride=2,pad=1,const=1,dtype=u8)", vnni),
            "vpdpbusd_512")
      << "strided vectors would be gathered";
}

// Of floats an instruction's groups go over columns where they would pad channels by a quarter or more; bytes may be
// grouped along the window's row instead.
TEST(RuleNotes, FewChannelsAreGroupedInColumns) {
  auto rewrites = [](const std::string& text, const std::string& target) {
    std::string found;
    for (const Step& step : PlanOf(text, *ParseTarget(target), *ParseChoices("")).schedule)
      if (const auto* rewrite = std::get_if<RewriteStep>(&step))
        if (rewrite->rewrite == "im2col" || rewrite->rewrite == "pad_reduction")
          found += rewrite->rewrite + " " + rewrite->names[0] + " ";
    return found;
  };
  const std::string bf16 = "avx512 cpu=generic features=avx512bf16", vnni = "avx512 cpu=generic features=avx512vnni";
  const std::string window = ",H=56,W=56,O=64,R=7,S=7,stride=2,pad=3,const=1,dtype=";
  EXPECT_EQ(rewrites("conv2d(C=3" + window + "bf16)", bf16), "im2col xp pad_reduction r ") << "all three, fused";
  EXPECT_EQ(rewrites("conv2d(C=9" + window + "bf16)", bf16), "pad_reduction c ");
  EXPECT_EQ(rewrites("conv2d(C=3" + window + "bf16)", vnni), "") << "nothing multiplies bf16";
  EXPECT_EQ(rewrites("conv2d(C=3" + window + "u8)", vnni), "pad_reduction s ");
  EXPECT_EQ(rewrites("conv2d(C=12" + window + "u8)", vnni), "") << "three groups of channels";
}

// What is broadcast is converted once, a constant ahead of time; vectors where they are copied anyway, or are read by
// many tiles of rows. Constants that the vectors of few rows read stay narrow in memory.
TEST(RuleNotes, FloatsOf16BitsAreWidenedWhereNothingMultipliesThem) {
  auto widened = [](const std::string& text, const std::string& choices = "", const std::string& target = "") {
    std::string found;
    const Plan plan = PlanOf(text, target.empty() ? Avx2() : *ParseTarget(target), *ParseChoices(choices));
    for (const Step& step : plan.schedule)
      if (const auto* rewrite = std::get_if<RewriteStep>(&step); rewrite && rewrite->rewrite == "widen")
        found += rewrite->names[0] + " ";
    return found;
  };
  const std::string dense = "dense(M=64,N=64,K=64,const=1,dtype=bf16)";
  EXPECT_EQ(widened(dense), "x w ");
  EXPECT_EQ(widened(dense, "", "avx512 cpu=generic"), "x w ");
  EXPECT_EQ(widened("dense(M=8,N=64,K=64,const=1,dtype=bf16)"), "x ");
  EXPECT_EQ(widened(dense, "", "avx512 cpu=generic features=avx512bf16"), "") << "an instruction does";
  EXPECT_EQ(widened("matmul(M=64,N=64,K=64,dtype=f16)"), "a b ");
  EXPECT_EQ(widened("matmul(M=2,N=64,K=64,dtype=f16)"), "a ") << "one tile of rows";
  EXPECT_EQ(widened("conv2d(C=16,H=14,W=14,O=32,R=3,S=3,pad=1,const=1,dtype=bf16)"), "xp w ");
  for (const char* type : {"f32", "i8"})
    EXPECT_EQ(widened("dense(M=64,N=64,K=64,const=1,dtype=" + std::string(type) + ")"), "");
  for (const Choice& choice : PlanOf(dense, Avx2()).choices)
    if (choice.decision.name == "widen") { EXPECT_EQ(widened(dense, choice.site + "=0"), ""); }
}

// As the accuracy admits and the target's instructions pay: one product of AVX512-BF16 and three of AMX.
TEST(RuleNotes, FactorsOfF32AreMultipliedInBf16WhereThatPays) {
  auto used = [](const std::string& kernel, const std::string& accuracy, const std::string& features,
                 const std::string& choices = "") {
    const std::string target = "avx512 cpu=generic" + (features.empty() ? "" : " features=" + features);
    std::string found;
    for (const Step& step :
         PlanOf(kernel + ",const=1,accuracy=" + accuracy + ")", *ParseTarget(target), *ParseChoices(choices)).schedule)
      if (const auto* rewrite = std::get_if<RewriteStep>(&step); rewrite && rewrite->rewrite.starts_with("bf16_"))
        found += rewrite->rewrite;
    return found;
  };
  const std::string dense = "dense(M=64,N=64,K=64", dots = "avx512bf16", tiles = "amx-bf16,amx-tile,avx512bf16";
  EXPECT_EQ(used(dense, "fast", dots), "bf16_factors");
  EXPECT_EQ(used(dense, "fast", tiles), "bf16_factors");
  EXPECT_EQ(used(dense, "relaxed", tiles), "bf16_pieces");
  EXPECT_EQ(used(dense, "relaxed", dots), "") << "three products take longer than one of f32";
  for (const std::string& features : {dots, tiles}) EXPECT_EQ(used(dense, "strict", features, "y.bf16=1"), "");
  EXPECT_EQ(used(dense, "fast", ""), "") << "nothing multiplies them";
  EXPECT_EQ(used(dense, "fast", dots, "y.bf16=0"), "");
  EXPECT_EQ(used("dense(M=64,N=8,K=64", "fast", dots), "") << "each element is converted for eight products";
  EXPECT_EQ(used("conv2d(C=64,H=14,W=14,O=64,R=1,S=1", "fast", dots), "bf16_factors");
  // Winograd's products are fewer by more than those of AVX512-BF16 are faster, and not than those of AMX.
  const std::string window = "conv2d(C=64,H=56,W=56,O=64,R=3,S=3,pad=1";
  EXPECT_EQ(used(window, "fast", dots), "");
  EXPECT_EQ(used(window, "fast", tiles), "bf16_factors");
}

TEST(RuleNotes, EachRuleSaysWhyItAppliedOrNot) {
  for (const Case& one : kCases) {
    Result<Chooser> chooser = ParseChoices(one.choices);
    ASSERT_TRUE(chooser);
    std::string text = "\n" + Text(PlanOf(one.kernel, Avx2(), *chooser).notes);
    size_t at = 0;
    for (const std::string& note : one.notes) {
      at = text.find("\n" + note, at);
      ASSERT_NE(at, std::string::npos) << one.kernel << " " << one.choices << "\nsays " << text << "and not\n" << note;
    }
  }
}

TEST(RuleNotes, EveryScheduledStageHasARuleThatTookIt) {
  for (const std::string& kernel : OperationSamples()) {
    const Plan plan = PlanOf(kernel, Avx2());
    std::set<std::string> seen;
    int took = 0;
    for (const RuleNote& note : plan.notes) {
      EXPECT_FALSE(note.rule.empty() || note.stage.empty() || note.why.empty()) << kernel << "\n" << Text(plan.notes);
      EXPECT_TRUE(seen.insert(note.rule + " " + note.stage + " " + note.why).second) << kernel << "\n"
                                                                                     << Text(plan.notes);
      took += note.applied;
    }
    EXPECT_GE(took, 1) << kernel << "\n" << Text(plan.notes);
  }
}

// The same everywhere that it is asked. Random plans too: many decisions come up only where others are not as the rules
// prefer.
TEST(RuleNotes, EveryDecisionHasAMeaning) {
  Rng rng(7);
  std::vector<std::string> kernels = OperationSamples();
  for (const Case& one : kCases) kernels.push_back(one.kernel);
  std::map<std::string, bool> flags;  // by decision
  std::map<std::string, Decision> decisions;
  for (const char* text : {"avx2 cpu=haswell l1=32768 l2=262144 l3=8388608 cores=2",
                           "avx512 cpu=sapphirerapids l1=49152 l2=2097152 l3=33554432 cores=8"}) {
    for (const std::string& kernel : kernels) {
      for (int i = 0; i < 20; ++i) {
        Chooser at_random = [&](const Choice& choice) { return choice.options[rng.Below(choice.options.size())]; };
        for (const Choice& choice : PlanOf(kernel, *ParseTarget(text), i == 0 ? Chooser{} : at_random).choices) {
          const std::string name(choice.decision.name);
          EXPECT_TRUE(choice.site.ends_with("." + name)) << choice.site;
          EXPECT_FALSE(choice.decision.meaning.empty()) << choice.site;
          EXPECT_EQ(decisions.try_emplace(name, choice.decision).first->second, choice.decision) << choice.site;
          EXPECT_EQ(flags.try_emplace(name, choice.is_flag).first->second, choice.is_flag) << choice.site;
          if (choice.is_flag) { EXPECT_EQ(choice.options, (std::vector<int64_t>{0, 1})) << choice.site; }
        }
      }
    }
  }
  EXPECT_GE(flags.size(), 18u);
  EXPECT_TRUE(flags.at("masked"));
  EXPECT_FALSE(flags.at("vector_axis"));
  EXPECT_EQ(decisions.at("rows").meaning, "rows of the register tile");
  for (auto& [name, decision] : decisions) {
    const bool is_alternative = name == "rule" || name == "im2col" || name == "vector_axis" || name == "winograd";
    EXPECT_EQ(decision.kind == Decision::Kind::kAlternative, is_alternative) << name;
    const bool grows = name == "unroll" || name == "unroll_window" || name == "share_rows" || name == "rows_together" ||
                       name == "chains";
    EXPECT_EQ(decision.grows_code, grows) << name;
  }
}

}  // namespace
}  // namespace hone
