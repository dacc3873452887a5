// What honed thinks about a kernel in its own process, for any text that is one: on every kind of target the rules make
// a schedule or refuse, by default and with decisions at random, and a schedule that they made reads back to the same
// program. The first byte names the target, the second the decisions.
#include <fmt/format.h>

#include <cctype>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "ir/language/parse.h"
#include "tests/support/odd_kernels.h"
#include "tests/support/random_kernel.h"
#include "tuner/space.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace hone {
namespace {

constexpr size_t kHeader = 2;
constexpr int kSamples = 2;

const std::vector<Target>& Targets() {
  static const std::vector<Target>& targets = *[] {
    auto* all = new std::vector<Target>;
    for (const char* text :
         {"cpu avx512 cpu=sapphirerapids features=amx-bf16,amx-int8,amx-tile,avx512bf16,avx512vnni l1=49152 l2=2097152 "
          "l3=33554432 cores=4",
          "cpu avx512 cpu=skylake-avx512 l1=32768 l2=1048576 l3=8388608 cores=2",
          "cpu avx2 cpu=haswell l1=32768 l2=262144 l3=8388608 cores=2",
          "cpu neon cpu=generic features=bf16,dotprod,i8mm l1=65536 l2=1048576 l3=4194304 cores=4",
          "opencl block_bytes=32768 block_threads=1024 units=4", "vulkan block_bytes=16384 block_threads=256 units=8",
          "cuda arch=sm_90 block_bytes=49152 block_bytes_most=232448 block_threads=1024 l2=52428800 units=132"})
      all->push_back(ParseTarget(text).value());
    return all;
  }();
  return targets;
}

template <typename T>
void ExpectReason(const Result<T>& result) {
  if (result) return;
  HONE_CHECK(!result.error().message.empty());
  HONE_CHECK(result.error().kind != ErrorKind::kInternal);
}

struct Word {
  size_t begin = 0;
  size_t size = 0;
  bool is_number = false;
};

std::vector<Word> WordsOf(std::string_view text) {
  auto in_word = [&](size_t at) { return std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_'; };
  std::vector<Word> words;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!in_word(at)) continue;
    Word word{at, 1, std::isdigit(static_cast<unsigned char>(text[at])) != 0};
    while (at + 1 < text.size() && in_word(at + 1)) ++word.size, ++at;
    words.push_back(word);
  }
  return words;
}

// From a bracket to the one that closes it; empty if nothing does.
std::string_view Group(std::string_view text, size_t open) {
  const char begin = text[open], end = begin == '(' ? ')' : begin == '[' ? ']' : '}';
  int depth = 0;
  for (size_t at = open; at < text.size(); ++at) {
    depth += text[at] == begin ? 1 : text[at] == end ? -1 : 0;
    if (depth == 0) return text.substr(open, at + 1 - open);
  }
  return {};
}

// A number for a number, a name for a name, what is within brackets for what is within others, another kernel.
std::string Changed(std::string text, Rng& rng) {
  static constexpr const char* kNumbers[] = {
      "0",    "1",    "2",       "3",      "4",    "5",     "7",       "8",          "9",          "15",  "16",  "17",
      "31",   "32",   "33",      "63",     "64",   "65",    "100",     "127",        "128",        "192", "255", "256",
      "1000", "1..8", "1..1000", "16..16", "4096", "65536", "1000000", "2147483647", "4294967296", "0.5", "1e30"};
  static constexpr const char* kNames[] = {"f32",   "f64",   "f16",  "bf16",    "i8",   "u8",     "i32",     "i64",
                                           "bool",  "sum",   "max",  "min",     "prod", "argmax", "argmin",  "abs",
                                           "exp",   "sqrt",  "tanh", "clamp",   "pad",  "if",     "floor",   "round",
                                           "const", "float", "relu", "sigmoid", "gelu", "strict", "relaxed", "cumsum"};
  const std::vector<Word> words = WordsOf(text);
  auto replace = [&](const Word& word, const std::string& by) { text.replace(word.begin, word.size, by); };
  switch (rng.Below(8)) {
    case 0: return rng.Chance(0.5) ? OddKernel(rng) : RandomKernel(rng, {.max_stages = 6}).Text();
    case 1:
    case 2: {
      std::vector<Word> numbers;
      for (const Word& word : words)
        if (word.is_number) numbers.push_back(word);
      if (!numbers.empty()) replace(numbers[rng.Below(numbers.size())], kNumbers[rng.Below(std::size(kNumbers))]);
      return text;
    }
    case 3:
      if (!words.empty()) replace(words[rng.Below(words.size())], kNames[rng.Below(std::size(kNames))]);
      return text;
    case 4:
    case 5: {
      if (words.empty()) return text;
      const Word &of = words[rng.Below(words.size())], &to = words[rng.Below(words.size())];
      replace(to, text.substr(of.begin, of.size));
      return text;
    }
    default: {
      std::vector<std::string_view> groups;
      for (size_t at = 0; at < text.size() && groups.size() < 1000; ++at)
        if (text[at] == '(' || text[at] == '[')
          if (const std::string_view group = Group(text, at); !group.empty()) groups.push_back(group);
      if (groups.empty()) return text;
      const std::string by(groups[rng.Below(groups.size())]);
      const std::string_view to = groups[rng.Below(groups.size())];
      const bool into = rng.Chance(0.3);  // the group where a word is
      if (into && !words.empty()) {
        replace(words[rng.Below(words.size())], by);
      } else {
        text.replace(static_cast<size_t>(to.data() - text.data()), to.size(), by);
      }
      return text;
    }
  }
}

}  // namespace
}  // namespace hone

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  using namespace hone;
  Rng rng(seed);
  if (size <= kHeader || rng.Chance(0.15)) return LLVMFuzzerMutate(data, size, max_size);
  if (rng.Chance(0.3)) data[rng.Below(kHeader)] = static_cast<uint8_t>(rng.Below(256));
  std::string text(reinterpret_cast<const char*>(data) + kHeader, size - kHeader);
  for (uint64_t n = 1 + rng.Below(3); n > 0; --n) text = Changed(std::move(text), rng);
  const size_t changed = std::min(text.size(), max_size - kHeader);
  std::memcpy(data + kHeader, text.data(), changed);
  return kHeader + changed;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hone;
  if (size <= kHeader) return 0;
  const Target& target = Targets()[data[0] % Targets().size()];
  const std::string text(reinterpret_cast<const char*>(data) + kHeader, size - kHeader);
  if (!ParseKernel(text)) return -1;  // what is no kernel is another fuzzer's, and is not kept
  Result<Space> space = Space::Open(text, target);
  ExpectReason(space);
  if (!space) return 0;
  HONE_CHECK(space->flops() >= 0 && space->Size() >= 1);
  std::vector<Result<Candidate>> candidates;
  candidates.push_back(space->Default());
  Rng rng(data[1]);
  for (int sample = 0; sample < kSamples; ++sample) {
    Result<Plan> plan = space->Sample(rng);
    ExpectReason(plan);
    if (plan) candidates.push_back(space->Complete(*std::move(plan)));
  }
  for (const Result<Candidate>& candidate : candidates) {
    ExpectReason(candidate);
    if (!candidate) continue;
    const Result<uint64_t> again = space->ProgramOf(candidate->schedule);
    if (again && *again == candidate->program) continue;
    fmt::print(stderr, "{}\n{}\n{}\n", text, candidate->schedule, again ? "is another program" : again.error().Text());
    HONE_CHECK(false);
  }
  return 0;
}
