#include "ir/target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

namespace hone {
namespace {

constexpr size_t kMaxText = 4096;  // all that a machine has is some 2,000

constexpr std::array<std::pair<Isa, std::string_view>, 3> kIsaNames = {
    {{Isa::kAvx2, "avx2"}, {Isa::kAvx512, "avx512"}, {Isa::kNeon, "neon"}}};

std::vector<std::string_view> SplitAt(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    size_t end = text.find(separator);
    if (end != 0) parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return parts;
}

Error BadTarget(std::string_view word, std::string_view wanted) {
  constexpr size_t kShown = 60;
  return Error{
      ErrorKind::kInvalid,
      fmt::format("target: saw \"{}\"{}, wanted {}", word.substr(0, kShown), word.size() > kShown ? "…" : "", wanted),
      ""};
}

}  // namespace

std::string_view IsaName(Isa isa) {
  return std::find_if(kIsaNames.begin(), kIsaNames.end(), [&](auto& entry) { return entry.first == isa; })->second;
}

std::string PrintTarget(const Target& target) {
  return fmt::format("{} cpu={} features={} l1={} l2={} l3={} cores={}", IsaName(target.isa), target.cpu,
                     fmt::join(target.features, ","), target.l1_bytes, target.l2_bytes, target.l3_bytes, target.cores);
}

Result<Target> ParseTarget(std::string_view text) {
  if (text.size() > kMaxText)
    return Error{ErrorKind::kLimit,
                 fmt::format("target: the text has {} bytes, hone's limit is {}", text.size(), kMaxText), ""};
  Target target;
  std::vector<std::string_view> words = SplitAt(text, ' ');
  if (words.empty()) return BadTarget(text, "an ISA: avx2, avx512 or neon");
  auto isa = std::find_if(kIsaNames.begin(), kIsaNames.end(), [&](auto& entry) { return entry.second == words[0]; });
  if (isa == kIsaNames.end()) return BadTarget(words[0], "an ISA: avx2, avx512 or neon");
  target.isa = isa->first;
  for (std::string_view word : std::span(words).subspan(1)) {
    size_t equals = word.find('=');
    if (equals == std::string_view::npos) return BadTarget(word, "name=value");
    std::string_view name = word.substr(0, equals), value = word.substr(equals + 1);
    if (name == "cpu") {
      target.cpu = value;
      continue;
    }
    if (name == "features") {
      for (std::string_view feature : SplitAt(value, ',')) {
        // A compiler would take such a feature for leave to use the larger registers everywhere.
        if (target.isa == Isa::kAvx2 && feature.starts_with("avx512"))
          return BadTarget(feature, "no AVX-512 feature with avx2; say avx512, or leave it out");
        target.features.emplace_back(feature);
      }
      continue;
    }
    int64_t number = 0;
    auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (code != std::errc() || end != value.data() + value.size() || number <= 0)
      return BadTarget(word, "a positive number");
    if (name == "l1")
      target.l1_bytes = number;
    else if (name == "l2")
      target.l2_bytes = number;
    else if (name == "l3")
      target.l3_bytes = number;
    else if (name == "cores" && number <= 4096)
      target.cores = static_cast<int>(number);
    else
      return BadTarget(word, "cpu, features, l1, l2, l3 or cores");
  }
  return target;
}

}  // namespace hone
