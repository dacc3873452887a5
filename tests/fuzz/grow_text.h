// Mutations that bytes alone hardly find: texts of the hostile families (tests/support/hostile_texts.h), a stretch of
// the text again and again, and brackets around it as deep as there is room.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "tests/support/hostile_texts.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace hone {

using Brackets = std::pair<std::string_view, std::string_view>;

// Where a word begins or ends.
inline size_t WordEdge(std::string_view text, size_t from) {
  auto in_word = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  while (from > 0 && from < text.size() && in_word(text[from]) && in_word(text[from - 1])) ++from;
  return from;
}

// LLVMFuzzerCustomMutator for texts that `reader` reads. `max_size` is what libFuzzer allows.
inline size_t GrowText(uint8_t* data, size_t size, size_t max_size, unsigned seed, HostileReader reader,
                       std::span<const Brackets> brackets) {
  static const std::vector<HostileFamily>& families =
      *[] { return new std::vector<HostileFamily>(HostileFamilies()); }();
  Rng rng(seed);
  std::string text(reinterpret_cast<const char*>(data), size);
  const size_t from = WordEdge(text, rng.Below(size + 1));
  const size_t to = WordEdge(text, std::min(size, from + rng.Below(48)));
  const std::string stretch = text.substr(from, to - from);
  const size_t times = size_t{1} << rng.Below(11);
  switch (rng.Below(12)) {
    case 0: {
      const HostileFamily& family = families[rng.Below(families.size())];
      if (family.reader != reader) return LLVMFuzzerMutate(data, size, max_size);
      text = family.text(std::min(max_size, size_t{64} << rng.Below(10)));
      break;
    }
    case 1: {
      std::string again;
      for (size_t i = 0; i < times && size + again.size() < max_size; ++i) again += stretch;
      text.insert(to, again);
      break;
    }
    case 2: {
      const Brackets& pair = brackets[rng.Below(brackets.size())];
      std::string around;
      for (size_t i = 0; i < times && size + i * (pair.first.size() + pair.second.size()) < max_size; ++i) {
        text.insert(from, pair.first);
        around += pair.second;
      }
      text.insert(to + text.size() - size, around);
      break;
    }
    default: return LLVMFuzzerMutate(data, size, max_size);
  }
  const size_t grown = std::min(text.size(), max_size);
  std::memcpy(data, text.data(), grown);
  return grown;
}

}  // namespace hone
