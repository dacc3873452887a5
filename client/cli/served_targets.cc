#include "client/cli/served_targets.h"

#include <fmt/format.h>

#include <map>

#include "ir/target.h"

namespace hone::cli {

std::vector<ServedTarget> ServedTargets(const StatusReply& status) {
  std::vector<ServedTarget> served;
  std::map<std::string, int> of_kind;
  for (const std::string& target : status.targets) {
    const std::string kind = target.substr(0, target.find(' '));
    if (const std::string_view name = UncheckedName(target); !name.empty())
      served.push_back({fmt::format("{}:{}", kind, name), target, false});
    else if (served.empty())
      served.push_back({kind, target});
    else
      served.push_back({fmt::format("{}:{}", kind, of_kind[kind]++), target});
  }
  return served;
}

}  // namespace hone::cli
