#include "backends/drivers/fact_word.h"

#include <algorithm>
#include <cstring>

namespace hone {

std::string FactWord(std::string text) {
  text.resize(std::min(text.find('\0'), text.size()));
  std::string word;
  for (char c : text) {
    const bool is_plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || std::strchr(".+-:", c) != nullptr;
    if (is_plain)
      word += c;
    else if (!word.empty() && word.back() != '_')
      word += '_';
  }
  word.resize(std::min<size_t>(word.size(), 100));
  while (!word.empty() && word.back() == '_') word.pop_back();
  return word.empty() ? "unnamed" : word;
}

Error DeviceIsGone(const DeviceTarget& target) {
  return {ErrorKind::kNotFound, "the device is not there any more, or has another driver: " + PrintTarget(target),
          "target"};
}

}  // namespace hone
