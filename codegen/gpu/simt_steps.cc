#include "codegen/gpu/simt_steps.h"

namespace hone::simt {
namespace {

using straight::Node;

void AppendSteps(const std::vector<Node>& nodes, std::vector<Step>& out) {
  for (const Node& node : nodes) {
    if (node.kind != Node::Kind::kFor && node.kind != Node::Kind::kIf) {
      out.push_back({Step::Kind::kNode, &node, 0});
      continue;
    }
    const bool is_loop = node.kind == Node::Kind::kFor;
    const size_t begin = out.size();
    out.push_back({is_loop ? Step::Kind::kLoopBegin : Step::Kind::kSkipUnless, &node, 0});
    AppendSteps(node.body, out);
    if (is_loop) out.push_back({Step::Kind::kLoopEnd, &node, begin + 1});
    out[begin].target = out.size();
  }
}

}  // namespace

std::vector<Step> StepsOf(const std::vector<Node>& nodes) {
  std::vector<Step> steps;
  AppendSteps(nodes, steps);
  return steps;
}

}  // namespace hone::simt
