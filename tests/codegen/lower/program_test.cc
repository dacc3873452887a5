// Loop programs: what their nodes say, on programs that lowering makes.
#include "codegen/lower/program.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "codegen/lower/lower.h"
#include "codegen/rules/default_schedule.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "ir/schedule/apply.h"

namespace hone {
namespace {

Result<LoopProgram> ProgramOf(const std::string& text, std::string_view schedule) {
  const Kernel kernel = Specialize(HONE_TRY(ParseKernel(text)));
  return Lower(HONE_TRY(ApplySchedule(kernel, HONE_TRY(ParseSchedule(schedule)))));
}

void ForEachValue(const LoopProgram& program, const std::function<void(const ValueNode&)>& visit) {
  std::function<void(const ValueNode&)> value = [&](const ValueNode& node) {
    visit(node);
    for (const ValuePtr& arg : node.args) value(*arg);
  };
  std::function<void(const Stmt&)> walk = [&](const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::kStore) value(*stmt.value);
    for (const StmtPtr& child : stmt.body) walk(*child);
  };
  for (const auto* nests : {&program.entry, &program.pack})
    for (const StmtPtr& nest : *nests) walk(*nest);
  for (const ValuePtr& opaque : program.opaque) value(*opaque);
}

int CountOf(const LoopProgram& program, ValueNode::Kind kind) {
  int count = 0;
  ForEachValue(program, [&](const ValueNode& node) { count += node.kind == kind; });
  return count;
}

std::string Head(const std::string& condition) {
  return "kernel head(x: f32[N]) -> y: f32[N] where N=9 { y[n] = if(" + condition + ", x[n], 0) }";
}

TEST(LoopProgram, ConditionsOnIndicesAreGuards) {
  for (const char* condition : {"n < 5", "n <= 4", "5 > n", "4 >= n"}) {
    Result<LoopProgram> program = ProgramOf(Head(condition), "");
    ASSERT_TRUE(program) << condition << ": " << program.error().Text();
    EXPECT_EQ(CountOf(*program, ValueNode::Kind::kGuard), 1) << condition;
    ForEachValue(*program, [&](const ValueNode& node) {
      if (node.kind != ValueNode::Kind::kGuard) return;
      EXPECT_EQ(program->vars.Text(program->vars.ExpandAxes(node.index[0])), "-y.n + 4") << condition;
    });
    EXPECT_NE(PrintProgram(*program).find("if(le(0, (-y.n + 4)), x[y.n], 0)"), std::string::npos)
        << PrintProgram(*program);
  }
}

TEST(LoopProgram, WhatAlwaysOrNeverHoldsIsNoGuard) {
  Result<LoopProgram> always = ProgramOf(Head("n < 9"), ""), never = ProgramOf(Head("n > 8"), "");
  ASSERT_TRUE(always && never);
  EXPECT_NE(PrintProgram(*always).find("y[y.n] = x[y.n]\n"), std::string::npos) << PrintProgram(*always);
  EXPECT_NE(PrintProgram(*never).find("y[y.n] = 0\n"), std::string::npos) << PrintProgram(*never);
}

// What program.h says of each kind's fields.
void ExpectFieldsOfItsKind(const LoopProgram& program, const ValueNode& node) {
  using Kind = ValueNode::Kind;
  const bool is_load = node.kind == Kind::kLoad, is_operation = node.kind == Kind::kOperation;
  const bool is_form = node.kind == Kind::kIndex || node.kind == Kind::kGuard;
  EXPECT_EQ(static_cast<bool>(node.buffer), is_load);
  EXPECT_EQ(node.index.size(), is_load ? program.buffer(node.buffer).extents.size() : is_form ? 1 : 0);
  if (is_load)
    EXPECT_EQ(node.args.size(), node.guard.empty() ? 0u : 1u);
  else
    EXPECT_TRUE(node.guard.empty() && node.prefetch == 0);
  if (node.kind == Kind::kIndex) { EXPECT_EQ(node.type, DType::kI64); }
  if (node.kind == Kind::kGuard) { EXPECT_EQ(node.type, DType::kBool); }
  if (is_operation) {
    EXPECT_FALSE(node.args.empty());
    EXPECT_GE(node.op, Op::kAdd);
  }
  if (node.kind != Kind::kConstant) { EXPECT_TRUE(node.int_value == 0 && node.float_value == 0); }
  if (node.kind == Kind::kConstant || is_form) { EXPECT_TRUE(node.args.empty()); }
}

TEST(LoopProgram, NodesHaveTheFieldsOfTheirKind) {
  std::set<std::string> kernels;
  for (const auto& entry : std::filesystem::directory_iterator(HONE_SOURCE_DIR "/models")) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);)
      if (!line.empty() && line[0] != '#') kernels.insert(line.substr(line.find(' ') + 1));
  }
  ASSERT_GT(kernels.size(), 100u);
  const Target target = ParseTarget("avx512 cpu=generic l1=49152 l2=2097152 l3=33554432 cores=2").value();
  std::set<ValueNode::Kind> seen;
  for (const std::string& text : kernels) {
    const Kernel kernel = Specialize(ParseKernel(text).value());
    const Schedule schedule = DefaultSchedule(kernel, target).value();
    Result<LoopProgram> program = Lower(ApplySchedule(kernel, schedule).value());
    ASSERT_TRUE(program) << text << ": " << program.error().Text();
    ForEachValue(*program, [&](const ValueNode& node) {
      seen.insert(node.kind);
      ExpectFieldsOfItsKind(*program, node);
    });
    ASSERT_FALSE(HasFailure()) << text;
  }
  EXPECT_EQ(seen.size(), 4u);  // indices as numbers are rare
}

TEST(LoopProgram, ALoopOfOneTripIsNoLoop) {
  Stmt outer, inner;
  outer.kind = inner.kind = Stmt::Kind::kLoop;
  inner.extent = Linear(1);
  EXPECT_TRUE(inner.RunsOnce());
  EXPECT_FALSE(inner.IsRuntimeLoop());
  inner.extent = Linear(2);
  EXPECT_TRUE(inner.IsRuntimeLoop());
  inner.loop = LoopKind::kUnrolled;
  EXPECT_FALSE(inner.IsRuntimeLoop());
  auto deep = std::make_unique<Stmt>(std::move(inner));
  outer.body.push_back(std::move(deep));
  EXPECT_FALSE(HasRuntimeLoop(outer));
  outer.body[0]->loop = LoopKind::kParallel;
  EXPECT_TRUE(HasRuntimeLoop(outer));
}

}  // namespace
}  // namespace hone
