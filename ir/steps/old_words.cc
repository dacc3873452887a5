#include "ir/steps/old_words.h"

#include <array>
#include <utility>

namespace hone {
namespace {

using Word = std::pair<std::string_view, std::string_view>;  // then, now

constexpr std::array<Word, 6> kRewrites = {{{"separate", "cache_write"},
                                            {"collapse", "fuse_axes"},
                                            {"expand", "im2col"},
                                            {"trim", "trim_padding"},
                                            {"numbers", "max_ignore_nan"},
                                            {"online", "online_reduction"}}};
constexpr std::array<Word, 2> kScopes = {{{"shared", "workspace"}, {"private", "per_worker"}}};

template <size_t kCount>
std::string_view OfToday(const std::array<Word, kCount>& words, std::string_view name) {
  for (const auto& [then, now] : words)
    if (then == name) return now;
  return name;
}

}  // namespace

std::string_view RewriteOfToday(std::string_view name) { return OfToday(kRewrites, name); }
std::string_view ScopeOfToday(std::string_view name) { return OfToday(kScopes, name); }

}  // namespace hone
