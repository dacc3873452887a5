// Everything that may be asked of honed.
#include "daemon/route_table.h"

namespace hone {
namespace {

constexpr Route kRoutes[] = {HONE_TABLE(HONE_ROUTES)};

constexpr bool IsRouted(MessageType type) {
  for (const Route& route : kRoutes)
    if (route.type == type) return true;
  return false;
}

#define HONE_ROUTED(name, number, replies) \
  static_assert(IsRouted(MessageType::k##name), #name " has no row in HONE_ROUTES");
HONE_REQUESTS(HONE_ROUTED)
#undef HONE_ROUTED

}  // namespace

std::span<const Route> AllRoutes() { return kRoutes; }

}  // namespace hone
