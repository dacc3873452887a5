// What passes make of small kernels, as text that reviews see change: tests/golden/NAME.golden holds a kernel, a
// target, a schedule (given, or the default one) and the loop program. Differences show the first line that differs.
//
// HONE_UPDATE_GOLDEN=1 writes schedules and programs anew instead of comparing: read `git diff tests/golden` before
// committing it.
//
//   # What the case shows.
//   == kernel
//   matmul(M=64,N=64,K=64)
//   == target
//   avx512 cpu=sapphirerapids
//   == default schedule        or: == schedule, which is the test's to choose and stays
//   split y.n 16
//   == program
//   operand a: f32[64, 64]
//   …
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "codegen/llvm/emitter.h"
#include "codegen/llvm/object.h"
#include "codegen/lower/lower.h"
#include "codegen/lower/program.h"
#include "codegen/rules/default_schedule.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "ir/schedule/apply.h"

namespace hone {
namespace {

constexpr std::string_view kSection = "== ";

struct Golden {
  std::string comment;
  std::vector<std::pair<std::string, std::string>> sections;  // title, text; in the order of the file

  const std::string* Find(std::string_view title) const {
    for (const auto& [name, text] : sections)
      if (name == title) return &text;
    return nullptr;
  }
};

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Golden ReadGolden(const std::string& text) {
  Golden golden;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kSection))
      golden.sections.emplace_back(line.substr(kSection.size()), "");
    else
      (golden.sections.empty() ? golden.comment : golden.sections.back().second) += line + "\n";
  }
  return golden;
}

std::string WriteGolden(const Golden& golden) {
  std::string text = golden.comment;
  for (const auto& [title, body] : golden.sections) text += fmt::format("{}{}\n{}", kSection, title, body);
  return text;
}

// The first line that differs, with what surrounds it.
std::string FirstDifference(const std::string& wanted, const std::string& got) {
  auto split = [](const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  };
  std::vector<std::string> a = split(wanted), b = split(got);
  size_t at = 0;
  while (at < a.size() && at < b.size() && a[at] == b[at]) ++at;
  std::string text = fmt::format("line {}:\n", at + 1);
  for (size_t i = at < 3 ? 0 : at - 3; i < at; ++i) text += "  " + a[i] + "\n";
  text += "- " + (at < a.size() ? a[at] : "(end)") + "\n+ " + (at < b.size() ? b[at] : "(end)") + "\n";
  return text;
}

// A kernel under a schedule, as far as the loop program.
struct Lowered {
  Target target;
  Schedule schedule;
  LoopProgram program;
};

Result<Lowered> LowerText(const std::string& kernel_text, const std::string& target_text, const std::string* schedule) {
  Lowered lowered;
  lowered.target = HONE_TRY(ParseTarget(target_text));
  const Target& target = lowered.target;
  Kernel kernel = Specialize(HONE_TRY(ParseKernel(kernel_text)));
  lowered.schedule = schedule ? HONE_TRY(ParseSchedule(*schedule)) : HONE_TRY(DefaultSchedule(kernel, target));
  lowered.program = HONE_TRY(Lower(HONE_TRY(ApplySchedule(kernel, lowered.schedule))));
  return lowered;
}

Result<Lowered> LowerGolden(const Golden& golden) {
  const std::string *kernel = golden.Find("kernel"), *target = golden.Find("target");
  if (!kernel || !target) return Error{ErrorKind::kInvalid, "a golden file has sections kernel and target", ""};
  return LowerText(*kernel, target->substr(0, target->find('\n')), golden.Find("schedule"));
}

// A program that nobody can emit is no example of anything.
Result<void> Emitted(const Lowered& lowered) {
  std::unique_ptr<ObjectCompiler> compiler = HONE_TRY(ObjectCompiler::Open(*lowered.target.cpu()));
  llvm::LLVMContext context;
  HONE_TRY(EmitModule(lowered.program, *lowered.target.cpu(), *compiler, context));
  return {};
}

std::vector<std::string> GoldenNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(HONE_SOURCE_DIR "/tests/golden"))
    if (entry.path().extension() == ".golden") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

class GoldenFile : public testing::TestWithParam<std::string> {};

TEST_P(GoldenFile, IsWhatPassesMake) {
  const std::filesystem::path path = HONE_SOURCE_DIR "/tests/golden/" + GetParam() + ".golden";
  const std::string text = ReadAll(path);
  Golden golden = ReadGolden(text);
  EXPECT_TRUE(golden.comment.starts_with("# ")) << path << " does not say what it shows";
  Result<Lowered> lowered = LowerGolden(golden);
  ASSERT_TRUE(lowered) << path << ": " << lowered.error().Text();
  if (Result<void> emitted = Emitted(*lowered); !emitted) ADD_FAILURE() << path << ": " << emitted.error().Text();
  const std::string printed = PrintSchedule(lowered->schedule);
  if (const std::string* given = golden.Find("schedule"))
    EXPECT_EQ(PrintSchedule(ParseSchedule(*given).value()), printed);
  else if (!golden.Find("default schedule"))
    golden.sections.emplace_back("default schedule", "");
  if (!golden.Find("program")) golden.sections.emplace_back("program", "");
  for (auto& [title, body] : golden.sections) {
    if (title == "default schedule") body = printed;
    if (title == "program") body = PrintProgram(lowered->program);
  }
  const std::string got = WriteGolden(golden);
  if (std::getenv("HONE_UPDATE_GOLDEN")) {
    std::ofstream(path, std::ios::binary) << got;
    return;
  }
  EXPECT_TRUE(got == text) << path.string() << " differs at " << FirstDifference(text, got)
                           << "If that is meant: HONE_UPDATE_GOLDEN=1, and read the difference.";
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenFile, testing::ValuesIn(GoldenNames()),
                         [](const auto& info) { return info.param; });

// ---- no divisions where it counts

// The loop variables on which a form's divisions depend; none if it divides nothing.
class DivisionFinder {
 public:
  explicit DivisionFinder(const VarTable& vars) : vars_(vars) {}

  void Visit(const Linear& form, bool divided = false) {
    for (const Term& term : form.terms()) {
      const Var& var = vars_[term.var];
      if (divided && var.kind == VarKind::kLoop) found.insert(term.var);
      Visit(var.a, divided || var.kind == VarKind::kFloorDiv);
      Visit(var.b, divided);
    }
  }

  std::set<VarId> found;

 private:
  const VarTable& vars_;
};

// Every address and guard of what hone_entry runs, with the loops around it, outermost first. An address is one form:
// what the emitter adds to the buffer's base.
void ForEachForm(const LoopProgram& program,
                 const std::function<void(const std::vector<const Stmt*>&, const Linear&)>& visit) {
  std::vector<const Stmt*> loops;
  auto address = [&](BufferId buffer, const std::vector<Linear>& index) {
    visit(loops, program.vars.ExpandAxes(program.FlatIndex(buffer, index)));
  };
  std::function<void(const ValueNode&)> value = [&](const ValueNode& node) {
    if (node.kind == ValueNode::Kind::kLoad) address(node.buffer, node.index);
    for (const Linear& guard : node.guard) visit(loops, program.vars.ExpandAxes(guard));
    for (const ValuePtr& arg : node.args) value(*arg);
  };
  std::function<void(const Stmt&)> walk = [&](const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::kLoop) loops.push_back(&stmt);
    if (stmt.kind == Stmt::Kind::kStore) {
      address(stmt.buffer, stmt.index);
      for (const Linear& guard : stmt.guard) visit(loops, program.vars.ExpandAxes(guard));
      value(*stmt.value);
    }
    for (const StmtPtr& child : stmt.body) walk(*child);
    if (stmt.kind == Stmt::Kind::kLoop) loops.pop_back();
  };
  for (const StmtPtr& nest : program.entry) walk(*nest);
}

// Number of addresses and guards whose divisions change within the `inner` innermost loops around them.
int DivisionsInside(const LoopProgram& program, size_t inner) {
  int count = 0;
  ForEachForm(program, [&](const std::vector<const Stmt*>& loops, const Linear& form) {
    DivisionFinder finder(program.vars);
    finder.Visit(form);
    std::vector<VarId> inside;
    for (size_t i = loops.size() < inner ? 0 : loops.size() - inner; i < loops.size(); ++i)
      inside.push_back(loops[i]->var);
    count += std::any_of(inside.begin(), inside.end(), [&](VarId var) { return finder.found.contains(var); });
  });
  return count;
}

constexpr size_t kAllLoops = 100;

LoopProgram Program(const std::string& kernel, const std::string& schedule) {
  Result<Lowered> lowered = LowerText(kernel, "avx512 cpu=sapphirerapids", &schedule);
  EXPECT_TRUE(lowered) << kernel << ": " << lowered.error().Text();
  return lowered ? std::move(lowered->program) : LoopProgram{};
}

// A check that finds nothing must be able to find something.
TEST(Divisions, AreFoundWhereTheyAre) {
  LoopProgram program =
      Program("kernel halves(x: f32[N]) -> y: f32[N, M] where N=7, M=6 { y[n, m] = x[(n + m)/2] }", "");
  EXPECT_GT(DivisionsInside(program, 1), 0);
  program = Program("transpose(M=7,N=13)", "fuse y.n y.m");
  EXPECT_GT(DivisionsInside(program, 1), 0);
}

TEST(Divisions, SplitIndicesHaveNone) {
  EXPECT_EQ(DivisionsInside(Program("matmul(M=7,N=40,K=13)", "split y.n 2 16\nsplit y.m 3\nsplit y.k 4 2"), kAllLoops),
            0);
  EXPECT_EQ(DivisionsInside(Program("add(M=7,N=40)", "split y.n 16\nsplit y.n.0 2\nsplit y.m 2 2 2"), kAllLoops), 0);
}

TEST(Divisions, PackedLayoutsHaveNone) {
  // Panels of 32 columns, read in tiles of 2·16 of the same columns.
  LoopProgram program = Program("matmul(M=7,N=100,K=13,const=1)",
                                "cache_read b -> bp for y const [n/32, k, n%32]\nsplit bp.n 32\nsplit y.n 2 16\n"
                                "reorder y.n.0 y.m y.k y.n.1 y.n.2\nvectorize y.n.2\nunroll y.n.1");
  EXPECT_EQ(DivisionsInside(program, kAllLoops), 0);
}

// h and w of y[.., h, w] are f/W and f%W: the address is f again.
TEST(Divisions, FusedAddressesAreOneIndex) {
  EXPECT_EQ(DivisionsInside(Program("add(M=7,N=16)", "fuse y.m y.n\nsplit y.m+n 8\nvectorize y.m+n.1"), kAllLoops), 0);
  EXPECT_EQ(DivisionsInside(Program("conv2d(C=3,H=5,W=7,O=4,R=1,S=1)", "inline xp\nfuse y.h y.w0"), kAllLoops), 0);
  EXPECT_EQ(DivisionsInside(Program("global_avgpool(C=3,H=5,W=7)", "fuse total.h total.w"), kAllLoops), 0);
}

// Tasks are fused loops: what they divide is known once a task.
TEST(Divisions, FusedTasksDivideOutsideTheirLoops) {
  LoopProgram program = Program("matmul(M=7,N=40,K=13)+bias",
                                "split y.n 16\nsplit y.m 3\nreorder y.m.0 y.n.0 y.m.1 y.n.1\nfuse y.m.0 y.n.0\n"
                                "parallel y.m.0+n.0\nvectorize y.n.1\nunroll y.m.1\ncompute_at acc y.m.0+n.0\n"
                                "store acc registers\nreorder acc.k acc.m acc.n\nunroll acc.m\nvectorize acc.n");
  EXPECT_GT(DivisionsInside(program, kAllLoops), 0);
  EXPECT_EQ(DivisionsInside(program, 2), 0);
}

// Default schedules fuse tasks, pack panels and pad planes: their inner loops, the three innermost, divide nothing.
TEST(Divisions, DefaultSchedulesHaveNoneInInnerLoops) {
  for (const char* kernel : {"matmul(M=512,N=512,K=512,const=1)+bias+gelu", "batch_matmul(B=12,M=128,N=128,K=64,tb=1)",
                             "conv2d(C=64,H=56,W=56,O=64,R=3,S=3,pad=1,const=1)+bias+relu",
                             "conv2d(C=512,H=7,W=7,O=512,R=3,S=3,pad=1,const=1)+bias+relu",
                             "conv2d(C=3,H=224,W=224,O=64,R=7,S=7,stride=2,pad=3,const=1)+bias+relu",
                             "depthwise_conv2d(C=144,H=56,W=56,R=3,S=3,stride=2,pad=1,const=1)+bias+relu6",
                             "maxpool2d(C=64,H=112,W=112,R=3,S=3,stride=2,pad=1)", "softmax(M=512,N=128)",
                             "layer_norm(M=128,N=768)", "transpose(M=517,N=263)"})
    for (const char* target : {"avx512 cpu=sapphirerapids cores=8", "avx2 cpu=haswell cores=1"}) {
      Result<Lowered> lowered = LowerText(kernel, target, nullptr);
      ASSERT_TRUE(lowered) << kernel << ": " << lowered.error().Text();
      EXPECT_EQ(DivisionsInside(lowered->program, 3), 0) << kernel << "\n" << PrintProgram(lowered->program);
    }
}

}  // namespace
}  // namespace hone
