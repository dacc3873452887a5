#include "network/run/missing_operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

namespace hone {
namespace {

constexpr size_t kMostNamed = 4;  // causes in one message

}  // namespace

std::vector<Missing> MissingOf(const Network& network) {
  std::vector<Missing> all;
  for (const LeftOut& left : network.left_out) {
    if (left.follows) continue;
    auto known = std::find_if(all.begin(), all.end(),
                              [&](const Missing& one) { return one.op == left.op && one.reason == left.reason; });
    if (known == all.end()) known = all.insert(all.end(), {left.op, left.reason, {}});
    known->nodes.push_back(left.node);
  }
  return all;
}

size_t CountDependents(const OnnxModel& model, const std::vector<std::string>& nodes) {
  std::unordered_map<std::string, std::vector<size_t>> readers;  // of a value
  for (size_t i = 0; i < model.nodes.size(); ++i) {
    for (const auto* names : {&model.nodes[i].inputs, &model.nodes[i].captured})
      for (const std::string& name : *names)
        if (!name.empty()) readers[name].push_back(i);
  }
  const std::set<std::string> named(nodes.begin(), nodes.end());
  std::vector<bool> reached(model.nodes.size(), false);
  std::vector<size_t> open;
  for (size_t i = 0; i < model.nodes.size(); ++i) {
    if (named.count(model.nodes[i].name) != 0) open.push_back(i);
  }
  size_t count = 0;
  while (!open.empty()) {
    const OnnxNode& node = model.nodes[open.back()];
    open.pop_back();
    for (const std::string& output : node.outputs) {
      auto found = readers.find(output);
      if (found == readers.end()) continue;
      for (size_t reader : found->second) {
        if (reached[reader]) continue;
        reached[reader] = true;
        if (named.count(model.nodes[reader].name) == 0) ++count;
        open.push_back(reader);
      }
    }
  }
  return count;
}

Result<void> CheckComplete(const Network& network, const std::string& path) {
  const std::vector<Missing> all = MissingOf(network);
  if (all.empty()) return {};
  std::string causes;
  for (size_t i = 0; i < std::min(all.size(), kMostNamed); ++i) {
    const Missing& one = all[i];
    causes +=
        fmt::format("{}{}{}: {} (node {})", i > 0 ? "; " : "", one.op,
                    one.nodes.size() > 1 ? fmt::format(" ×{}", one.nodes.size()) : "", one.reason, one.nodes.front());
  }
  if (all.size() > kMostNamed) causes += fmt::format("; {} more causes", all.size() - kMostNamed);
  return Error{ErrorKind::kUnsupported, fmt::format("it cannot run whole; {}. hone check tells more", causes), path};
}

}  // namespace hone
