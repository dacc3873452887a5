#include "client/cli/text_layout.h"

#include <algorithm>

namespace hone::cli {
namespace {

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Bytes of the first `columns` code points.
size_t BytesOf(std::string_view text, size_t columns) {
  size_t at = 0;
  for (; columns > 0 && at < text.size(); --columns) {
    ++at;
    while (at < text.size() && IsContinuation(text[at])) ++at;
  }
  return at;
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return lines;
}

}  // namespace

size_t Width(std::string_view text) {
  return text.size() - static_cast<size_t>(std::count_if(text.begin(), text.end(), IsContinuation));
}

std::string First(std::string_view text, size_t columns) { return std::string(text.substr(0, BytesOf(text, columns))); }

std::string OneLine(std::string_view kernel) {
  std::string line;
  bool in_comment = false;
  for (char c : kernel) {
    in_comment = c == '#' || (in_comment && c != '\n');
    if (in_comment) continue;
    const bool is_blank = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (!is_blank)
      line += c;
    else if (!line.empty() && line.back() != ' ')
      line += ' ';
  }
  if (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

std::string Cut(std::string text, size_t columns) {
  std::replace_if(text.begin(), text.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  const size_t width = Width(text);
  if (width <= columns) return text;
  constexpr std::string_view kGap = " … ";
  if (columns < 8) return text.substr(0, BytesOf(text, columns));
  const size_t kept = columns - Width(kGap), first = (kept + 1) / 2;
  return text.substr(0, BytesOf(text, first)) + std::string(kGap) + text.substr(BytesOf(text, width - (kept - first)));
}

std::string Pad(std::string text, size_t columns) {
  text = Cut(std::move(text), columns);
  return text + std::string(columns - std::min(columns, Width(text)), ' ');
}

std::string Wrap(std::string_view text, size_t columns, size_t indent, size_t begin) {
  constexpr size_t kLeast = 8;  // columns beside the indent, however narrow it is
  columns = std::max(columns, std::max(indent, begin) + kLeast);
  std::string out;
  size_t at = begin;
  bool is_first = true;  // of its line
  auto next_line = [&] {
    out += "\n" + std::string(indent, ' ');
    at = indent;
    is_first = true;
  };
  while (!text.empty()) {
    if (text[0] == ' ' || text[0] == '\n') {
      text.remove_prefix(1);
      continue;
    }
    std::string_view word = text.substr(0, std::min(text.find_first_of(" \n"), text.size()));
    text.remove_prefix(word.size());
    if (!is_first && at + 1 + Width(word) > columns) next_line();
    if (!is_first) {
      out += ' ';
      ++at;
    }
    while (at + Width(word) > columns) {
      size_t bytes = BytesOf(word, columns - at);
      if (size_t comma = word.substr(0, bytes).rfind(','); comma != std::string_view::npos) bytes = comma + 1;
      out += word.substr(0, bytes);
      word.remove_prefix(bytes);
      next_line();
    }
    out += word;
    at += Width(word);
    is_first = false;
  }
  return out;
}

std::string WrappedFacts(const std::vector<std::pair<std::string, std::string>>& facts, size_t columns, size_t indent) {
  size_t width = 0;
  for (const auto& [name, _] : facts) width = std::max(width, Width(name));
  const size_t from = indent + width + 2;
  std::string text;
  for (const auto& [name, value] : facts) {
    text += std::string(indent, ' ') + name + std::string(width - Width(name) + 2, ' ') +
            Wrap(value, columns, from, from) + "\n";
  }
  return text;
}

std::string Bar(double share, size_t columns) {
  const size_t inside = columns > 2 ? columns - 2 : 0;
  const auto full = static_cast<size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(inside) + 0.5);
  return "[" + std::string(full, '#') + std::string(inside - full, '-') + "]";
}

std::string SideBySide(std::string_view left, std::string_view right, size_t columns, size_t gap) {
  std::vector<std::string_view> a = Lines(left), b = Lines(right);
  std::string text;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    std::string line = i < a.size() ? std::string(a[i]) : std::string();
    if (i < b.size() && !b[i].empty())
      line += std::string(columns - std::min(columns, Width(line)) + gap, ' ') + std::string(b[i]);
    text += line + "\n";
  }
  return text;
}

}  // namespace hone::cli
