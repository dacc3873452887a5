// What may be asked of a daemon that has no compiler.
#include "daemon/route_table.h"

namespace hone {
namespace {

constexpr Route kRoutes[] = {HONE_TABLE(HONE_SERVING_ROUTES)};

}  // namespace

std::span<const Route> ServingRoutes() { return kRoutes; }

}  // namespace hone
