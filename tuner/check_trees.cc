#include "tuner/check_trees.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace hone {
namespace {

using Json = nlohmann::json;

constexpr int kDeepest = 16;  // nested values: readers that call themselves for each run out of stack
constexpr int64_t kMostNodes = 1 << 24;

Error NoTrees(std::string what) { return {ErrorKind::kCorrupt, "trees " + std::move(what), ""}; }

// A number that XGBoost keeps as a string: "num_nodes":"3".
Result<int64_t> Parameter(const Json& parameters, const char* name) {
  const auto& text = parameters.at(name).get_ref<const std::string&>();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return NoTrees(fmt::format("whose {} is no number", name));
  return value;
}

Result<void> Require(const Json& parameters, const char* name, int64_t wanted) {
  const int64_t value = HONE_TRY(Parameter(parameters, name));
  if (value != wanted) return NoTrees(fmt::format("whose {} is {}, wanted {}", name, value, wanted));
  return {};
}

// A list of integers, one a node.
Result<std::vector<int64_t>> ForEachNode(const Json& tree, const char* name, size_t nodes) {
  const Json& list = tree.at(name);
  if (!list.is_array() || list.size() != nodes)
    return NoTrees(fmt::format("of {} nodes whose {} are not as many", nodes, name));
  std::vector<int64_t> values;
  values.reserve(nodes);
  for (const Json& value : list) {
    if (!value.is_number_integer()) return NoTrees(fmt::format("whose {} are no integers", name));
    values.push_back(value.get<int64_t>());
  }
  return values;
}

Result<void> CheckLinks(const Json& tree, size_t nodes, size_t width) {
  const auto left = HONE_TRY(ForEachNode(tree, "left_children", nodes));
  const auto right = HONE_TRY(ForEachNode(tree, "right_children", nodes));
  const auto parents = HONE_TRY(ForEachNode(tree, "parents", nodes));
  const auto features = HONE_TRY(ForEachNode(tree, "split_indices", nodes));
  for (size_t i = 0; i < nodes; ++i) {
    if (left[i] == -1 && right[i] == -1) continue;
    for (const int64_t child : {left[i], right[i]}) {
      // Later ones: so every way down ends.
      if (child <= static_cast<int64_t>(i) || child >= static_cast<int64_t>(nodes))
        return NoTrees(fmt::format("whose node {} of {} leads to {}", i, nodes, child));
      if (parents[static_cast<size_t>(child)] != static_cast<int64_t>(i))
        return NoTrees(fmt::format("whose node {} is not its child's parent", i));
    }
    if (left[i] == right[i]) return NoTrees(fmt::format("whose node {} has one child twice", i));
    if (features[i] < 0 || features[i] >= static_cast<int64_t>(width))
      return NoTrees(fmt::format("whose node {} asks for feature {} of {}", i, features[i], width));
  }
  return {};
}

Result<void> CheckTree(const Json& tree, size_t width) {
  const Json& parameters = tree.at("tree_param");
  const int64_t nodes = HONE_TRY(Parameter(parameters, "num_nodes"));
  if (nodes < 1 || nodes > kMostNodes) return NoTrees(fmt::format("of {} nodes", nodes));
  HONE_TRY(Require(parameters, "num_feature", static_cast<int64_t>(width)));
  const auto count = static_cast<size_t>(nodes);
  HONE_TRY(CheckLinks(tree, count, width));
  for (const char* name : {"base_weights", "split_conditions", "loss_changes", "sum_hessian", "default_left"})
    if (!tree.at(name).is_array() || tree.at(name).size() != count)
      return NoTrees(fmt::format("of {} nodes whose {} are not as many", count, name));
  for (const int64_t type : HONE_TRY(ForEachNode(tree, "split_type", count)))
    if (type != 0) return NoTrees("that split by categories");
  for (const char* name : {"categories", "categories_nodes", "categories_segments", "categories_sizes"})
    if (!tree.at(name).empty()) return NoTrees("with categories");
  return {};
}

Result<void> CheckLearner(const Json& learner, size_t width) {
  const Json& common = learner.at("learner_model_param");
  const int64_t features = HONE_TRY(Parameter(common, "num_feature"));
  if (features != static_cast<int64_t>(width))
    return NoTrees(fmt::format("over {} features, wanted {}", features, width));
  HONE_TRY(Require(common, "num_class", 0));
  if (common.contains("num_target")) HONE_TRY(Require(common, "num_target", 1));
  const Json& objective = learner.at("objective").at("name");
  if (objective != "reg:squarederror" && objective != "rank:pairwise")
    return NoTrees(fmt::format("of the objective {}", objective.dump()));
  const Json& booster = learner.at("gradient_booster");
  if (booster.at("name") != "gbtree") return NoTrees(fmt::format("of the kind {}", booster.at("name").dump()));
  const Json& model = booster.at("model");
  const Json& trees = model.at("trees");
  const Json& outputs = model.at("tree_info");
  const auto count = static_cast<int64_t>(trees.size());
  HONE_TRY(Require(model.at("gbtree_model_param"), "num_trees", count));
  HONE_TRY(Require(model.at("gbtree_model_param"), "num_parallel_tree", 1));
  if (!trees.is_array() || !outputs.is_array() || outputs.size() != trees.size())
    return NoTrees(fmt::format("that are {}, with {} outputs", trees.size(), outputs.size()));
  for (const Json& output : outputs)
    if (output != 0) return NoTrees("with several outputs");
  for (size_t i = 0; i < trees.size(); ++i) {
    if (trees[i].at("id") != i) return NoTrees("out of order");
    HONE_TRY(CheckTree(trees[i], width));
  }
  return {};
}

}  // namespace

Result<std::string> CheckTrees(std::string_view json, size_t width) {
  bool is_deep = false;
  const Json tree = Json::parse(
      json,
      [&](int depth, Json::parse_event_t, Json&) {
        is_deep |= depth > kDeepest;
        return !is_deep;
      },
      false);
  if (is_deep) return NoTrees(fmt::format("nested deeper than {}", kDeepest));
  if (tree.is_discarded()) return NoTrees("that are not JSON");
  try {
    HONE_TRY(CheckLearner(tree.at("learner"), width));
    return tree.dump();
  } catch (const Json::exception& missing) { return NoTrees(fmt::format("that are none: {}", missing.what())); }
}

}  // namespace hone
