// JSON for --json, one object at a time.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace hone::cli {

// An object whose keys keep their order.
class Json {
 public:
  using Value = std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<std::string>,
                             std::vector<int64_t>, Json, std::vector<Json>>;

  Json& Set(std::string key, bool value) { return Add(std::move(key), value); }
  Json& Set(std::string key, double value) { return Add(std::move(key), value); }
  template <std::signed_integral T>
  Json& Set(std::string key, T value) {
    return Add(std::move(key), static_cast<int64_t>(value));
  }
  template <std::unsigned_integral T>
    requires(!std::same_as<T, bool>)
  Json& Set(std::string key, T value) {
    return Add(std::move(key), static_cast<uint64_t>(value));
  }
  Json& Set(std::string key, std::string_view value) { return Add(std::move(key), std::string(value)); }
  Json& Set(std::string key, const std::string& value) { return Add(std::move(key), value); }
  Json& Set(std::string key, const char* value) { return Add(std::move(key), std::string(value)); }
  Json& Set(std::string key, std::vector<std::string> value) { return Add(std::move(key), std::move(value)); }
  Json& Set(std::string key, std::vector<int64_t> value) { return Add(std::move(key), std::move(value)); }
  Json& Set(std::string key, Json value);
  Json& Set(std::string key, std::vector<Json> value);

  // Adds the fields of another object.
  Json& Append(const Json& other);

  // One line without control characters. Bytes that are no UTF-8 are replaced; numbers that JSON lacks (NaN,
  // infinities) are null.
  std::string Dump() const;

  const std::vector<std::pair<std::string, Value>>& fields() const { return fields_; }

 private:
  Json& Add(std::string key, Value value);

  std::vector<std::pair<std::string, Value>> fields_;
};

}  // namespace hone::cli
