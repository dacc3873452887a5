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
constexpr std::string_view kCpuPrefix = "cpu ";
constexpr std::string_view kIsas = "an ISA: avx2, avx512 or neon";

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

bool IsIsa(std::string_view word) {
  return std::any_of(kIsaNames.begin(), kIsaNames.end(), [&](auto& entry) { return entry.second == word; });
}

std::string_view FirstWord(std::string_view text) { return text.substr(0, text.find(' ')); }

bool IsName(std::string_view word) {
  auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  return !word.empty() && is_letter(word[0]) && std::all_of(word.begin(), word.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '_';
  });
}

std::optional<int64_t> ToNumber(std::string_view text) {
  int64_t number = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// `words`: without the kind.
Result<Target> ParseCpu(std::span<const std::string_view> words) {
  CpuTarget target;
  if (words.empty()) return BadTarget("", kIsas);
  auto isa = std::find_if(kIsaNames.begin(), kIsaNames.end(), [&](auto& entry) { return entry.second == words[0]; });
  if (isa == kIsaNames.end()) return BadTarget(words[0], kIsas);
  target.isa = isa->first;
  for (std::string_view word : words.subspan(1)) {
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
    const std::optional<int64_t> number = ToNumber(value);
    if (!number || *number <= 0) return BadTarget(word, "a positive number");
    if (name == "l1")
      target.l1_bytes = *number;
    else if (name == "l2")
      target.l2_bytes = *number;
    else if (name == "l3")
      target.l3_bytes = *number;
    else if (name == "cores" && *number <= 4096)
      target.cores = static_cast<int>(*number);
    else
      return BadTarget(word, "cpu, features, l1, l2, l3 or cores");
  }
  return Target(std::move(target));
}

Result<Target> ParseDevice(std::string_view kind, std::span<const std::string_view> words) {
  DeviceTarget target;
  target.kind = kind;
  for (std::string_view word : words) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string_view name = word.substr(0, equals), value = word.substr(std::min(equals + 1, word.size()));
    if (!IsName(name) || value.empty()) return BadTarget(word, "name=value");
    if (!target.facts.emplace(name, value).second) return BadTarget(word, "each name once");
  }
  return Target(std::move(target));
}

}  // namespace

std::string_view IsaName(Isa isa) {
  return std::find_if(kIsaNames.begin(), kIsaNames.end(), [&](auto& entry) { return entry.first == isa; })->second;
}

std::optional<int64_t> DeviceTarget::Number(std::string_view fact) const {
  auto found = facts.find(fact);
  return found == facts.end() ? std::nullopt : ToNumber(found->second);
}

bool DifferInDriverAlone(const DeviceTarget& a, const DeviceTarget& b) {
  if (a == b) return false;
  auto rest = [](DeviceTarget target) {
    target.facts.erase("driver");
    return target;
  };
  return rest(a) == rest(b);
}

std::string_view ArchitectureName(const Target& target) {
  return target.cpu() ? IsaName(target.cpu()->isa) : target.kind();
}

bool IsChecked(const Target& target) {
  return target.device() == nullptr || !target.device()->facts.contains(kUncheckedFact);
}

std::string PrintTarget(const Target& target) {
  if (const CpuTarget* cpu = target.cpu())
    return fmt::format("{}{} cpu={} features={} l1={} l2={} l3={} cores={}", kCpuPrefix, IsaName(cpu->isa), cpu->cpu,
                       fmt::join(cpu->features, ","), cpu->l1_bytes, cpu->l2_bytes, cpu->l3_bytes, cpu->cores);
  std::string text = target.device()->kind;
  for (const auto& [name, value] : target.device()->facts) text += fmt::format(" {}={}", name, value);
  return text;
}

Result<Target> ParseTarget(std::string_view text) {
  if (text.size() > kMaxText)
    return Error{ErrorKind::kLimit,
                 fmt::format("target: the text has {} bytes, hone's limit is {}", text.size(), kMaxText), ""};
  const std::vector<std::string_view> words = SplitAt(text, ' ');
  constexpr std::string_view kKinds = "a kind of device, such as cpu, and its facts";
  if (words.empty()) return BadTarget(text, kKinds);
  if (IsIsa(words[0])) return ParseCpu(words);  // as it was written before targets had kinds
  if (words[0] == kCpuKind) return ParseCpu(std::span(words).subspan(1));
  if (!IsName(words[0])) return BadTarget(words[0], kKinds);
  return ParseDevice(words[0], std::span(words).subspan(1));
}

std::string_view KindOfTarget(std::string_view text) {
  const std::string_view first = FirstWord(text);
  return IsIsa(first) ? kCpuKind : first;
}

std::string_view UncheckedName(std::string_view text) {
  for (std::string_view word : SplitAt(text, ' '))
    if (word.starts_with(kUncheckedFact) && word.substr(kUncheckedFact.size()).starts_with('='))
      return word.substr(kUncheckedFact.size() + 1);
  return {};
}

std::string TargetInWordsOfToday(std::string_view text) {
  return (IsIsa(FirstWord(text)) ? std::string(kCpuPrefix) : std::string()).append(text);
}

std::string_view HashedTarget(std::string_view text) {
  if (text.starts_with(kCpuPrefix) && IsIsa(FirstWord(text.substr(kCpuPrefix.size()))))
    text.remove_prefix(kCpuPrefix.size());
  return text;
}

}  // namespace hone
