#include "client/cli/json.h"

#include <nlohmann/json.hpp>

namespace hone::cli {
namespace {

using Tree = nlohmann::ordered_json;

Tree ToTree(const Json& json) {
  Tree tree = Tree::object();
  for (const auto& [key, value] : json.fields()) {
    tree[key] = std::visit(
        [](const auto& held) -> Tree {
          using Held = std::decay_t<decltype(held)>;
          if constexpr (std::is_same_v<Held, Json>) {
            return ToTree(held);
          } else if constexpr (std::is_same_v<Held, std::vector<Json>>) {
            Tree list = Tree::array();
            for (const Json& entry : held) list.push_back(ToTree(entry));
            return list;
          } else {
            return Tree(held);
          }
        },
        value);
  }
  return tree;
}

}  // namespace

Json& Json::Add(std::string key, Value value) {
  fields_.emplace_back(std::move(key), std::move(value));
  return *this;
}
Json& Json::Set(std::string key, Json value) { return Add(std::move(key), Value(std::move(value))); }
Json& Json::Set(std::string key, std::vector<Json> value) { return Add(std::move(key), Value(std::move(value))); }

Json& Json::Append(const Json& other) {
  fields_.insert(fields_.end(), other.fields_.begin(), other.fields_.end());
  return *this;
}

std::string Json::Dump() const { return ToTree(*this).dump(-1, ' ', false, Tree::error_handler_t::replace); }

}  // namespace hone::cli
