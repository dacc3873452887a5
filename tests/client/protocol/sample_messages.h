// Messages for tests that go through all of them: samples that are the same each time, and their fields' names and
// types in the words of docs/protocol.md.
#pragma once

#include <cxxabi.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "client/protocol/messages.h"

namespace hone::testing {

template <typename T>
concept Fielded = requires(T& value) { value.Fields(); };

// Gives every field another value than those before it, every list two elements, every enumerator the second there is.
class Sampler {
 public:
  template <typename T>
  void Fill(T& value) {
    if constexpr (Fielded<T>) {
      std::apply([&](auto&... fields) { (Fill(fields), ...); }, value.Fields());
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = "s" + std::to_string(++last_);
    } else if constexpr (std::is_same_v<T, bool>) {
      value = ++last_ % 2 == 1;
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(2);
    } else if constexpr (std::is_arithmetic_v<T>) {
      value = static_cast<T>(++last_ * (std::is_signed_v<T> ? -1.5 : 1));
    } else {
      value.resize(2);
      for (auto& element : value) Fill(element);
    }
  }

 private:
  int last_ = 0;
};

template <typename Message>
Message Sample() {
  Message message;
  Sampler().Fill(message);
  return message;
}

// "StepTime"
template <typename T>
std::string StructName() {
  std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(typeid(T).name(), nullptr, nullptr, nullptr),
                                                   &std::free);
  const std::string qualified = name.get();
  return qualified.substr(qualified.rfind(':') + 1);
}

// "u32", "string", "StepTime*"
template <typename T>
std::string TypeName() {
  if constexpr (Fielded<T>) return StructName<T>();
  if constexpr (std::is_same_v<T, std::string>) return "string";
  if constexpr (std::is_same_v<T, bool>) return "bool";
  if constexpr (std::is_same_v<T, double>) return "f64";
  if constexpr (std::is_enum_v<T>) return TypeName<std::underlying_type_t<T>>();
  if constexpr (std::is_integral_v<T>) return (std::is_signed_v<T> ? "i" : "u") + std::to_string(8 * sizeof(T));
  if constexpr (requires { typename T::value_type; }) return TypeName<typename T::value_type>() + "*";
}

using FieldList = std::vector<std::pair<std::string, std::string>>;  // name, type

template <Fielded T>
std::vector<std::string> FieldNames() {
  std::istringstream words{std::string(T::kFieldNames)};
  std::vector<std::string> names;
  for (std::string name; words >> name;) names.push_back(name.ends_with(',') ? name.substr(0, name.size() - 1) : name);
  return names;
}

// Adds the fields of T, and of what T is made of, to `rules` by their structs' names.
template <Fielded T>
void AddGrammar(std::map<std::string, FieldList>& rules) {
  FieldList fields;
  const std::vector<std::string> names = FieldNames<T>();
  auto add = [&]<typename Field>(const Field&) {
    fields.emplace_back(names.at(fields.size()), TypeName<Field>());
    if constexpr (Fielded<Field>) AddGrammar<Field>(rules);
    if constexpr (requires { typename Field::value_type; }) {
      if constexpr (Fielded<typename Field::value_type>) AddGrammar<typename Field::value_type>(rules);
    }
  };
  std::apply([&](const auto&... each) { (add(each), ...); }, T().Fields());
  rules[StructName<T>()] = fields;
}

}  // namespace hone::testing
