#include "client/cli/json.h"

#include <fmt/format.h>

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

std::string Json::Dump() const {
  const std::string text = ToTree(*this).dump(-1, ' ', false, Tree::error_handler_t::replace);
  // JSON allows DEL and C1 as they are, and a terminal takes them for commands.
  std::string plain;
  plain.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]),
               next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool is_c1 = byte == 0xc2 && next >= 0x80 && next < 0xa0;
    if (byte == 0x7f || is_c1)
      plain += fmt::format("\\u{:04x}", is_c1 ? next : byte);
    else
      plain += text[i];
    i += is_c1 ? 1 : 0;
  }
  return plain;
}

}  // namespace hone::cli
