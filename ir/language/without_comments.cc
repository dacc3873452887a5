#include "ir/language/without_comments.h"

#include <algorithm>

namespace hone {

std::string WithoutComments(std::string_view source) {
  std::string text;
  while (!source.empty()) {
    std::string_view line = source.substr(0, source.find('\n'));
    source.remove_prefix(std::min(source.size(), line.size() + 1));
    bool in_string = false;
    for (size_t i = 0; i < line.size(); ++i) {
      in_string ^= line[i] == '"';
      if (line[i] == '#' && !in_string) line = line.substr(0, i);
    }
    const size_t last = line.find_last_not_of(" \t\r");
    if (last == std::string_view::npos) continue;
    if (!text.empty()) text += '\n';
    text += line.substr(0, last + 1);
  }
  return text;
}

}  // namespace hone
