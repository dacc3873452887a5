// Words that schedules were once written with. Caches keep schedules for good, so these are read as long as there may
// be a cache from then; they are never written.
//
//   rewrite separate, collapse, expand, trim, numbers, online      see RewriteOfToday
//   store … shared, store … private                                workspace, per_worker
//   cache_write t at t.m.0                                         register_tile t.m.0
//
// None of them is a word of today: `cache_write` is a rewrite now and begins no line, and no other scope may be named
// `shared` or `private` as long as these are read.
#pragma once

#include <string>
#include <string_view>

namespace hone {

// Today's word for an old one; other words as they are.
std::string_view RewriteOfToday(std::string_view name);
std::string_view ScopeOfToday(std::string_view name);

}  // namespace hone
