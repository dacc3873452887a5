#include "client/protocol/missing_text.h"

#include <fmt/format.h>

namespace hone {

std::string MissingText(const MissingReply& missing) {
  std::string text = fmt::format("# not on this device: {}\n", missing.target);
  for (const MissingRow& row : missing.rows) text += fmt::format("{} {}\n", row.requests, row.kernel);
  if (missing.forgotten > 0)
    text += fmt::format("# and {} requests for others, for which the list had no room\n", missing.forgotten);
  return text;
}

}  // namespace hone
