#include "daemon/edge/suits.h"

#include <algorithm>
#include <string_view>

namespace hone {
namespace {

// The next word of a text, which loses it.
std::string_view TakeWord(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

}  // namespace

uint64_t HowWellItSuits(const std::string& target_text, const Devices& devices) {
  const ServedDevice& host = devices.host();
  const Result<Target> target = ParseTarget(target_text);
  if (!target || target->kind() != host.target.kind()) return 0;
  if (!host.backend->RunsHere(*target)) return 0;
  uint64_t suits = 1;
  std::string_view theirs = target_text, ours = host.target_text;
  for (int i = 0; i < 16; ++i) {
    const std::string_view their = TakeWord(theirs), our = TakeWord(ours);
    suits = suits * 2 + (!their.empty() && their == our);
  }
  return suits;
}

}  // namespace hone
