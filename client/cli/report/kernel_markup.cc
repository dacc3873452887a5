#include "client/cli/report/kernel_markup.h"

#include <fmt/format.h>

#include <ctime>

#include "client/cli/print_values.h"

namespace hone::cli {
namespace {

// The nearest place at or before `at` where a UTF-8 character begins.
size_t CharacterAt(std::string_view text, size_t at) {
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

}  // namespace

std::string PageTime(double us) {
  if (!(us > 0)) return "–";
  std::string text = TimeText(us);
  return text.ends_with(" us") ? text.substr(0, text.size() - 2) + "µs" : text;
}

std::string PageDate(int64_t unix_time) {
  if (unix_time <= 0) return "–";
  const time_t seconds = unix_time;
  tm parts{};
  char text[32];
  if (gmtime_r(&seconds, &parts) == nullptr || strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts) == 0)
    return "–";
  return text;
}

std::string PageCount(double count) {
  std::string digits = fmt::format("{:.0f}", count);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string PageNumber(double value) {
  if (value >= 99.95) return PageCount(value);
  return fmt::format("{:.{}f}", value, value < 0.0995 ? 3 : value < 9.995 ? 2 : 1);
}

std::string PageRatio(double ratio) {
  if (!(ratio >= kLeastRatio)) return "–";
  return fmt::format("{:.{}f}×", ratio, ratio < 10 ? 2 : ratio < 100 ? 1 : 0);
}

std::string PagePercent(double share) {
  if (!(share > 0)) return "–";
  return share < 0.005 ? "< 1 %" : fmt::format("{:.0f} %", share * 100);
}

std::string Plural(size_t count, std::string_view noun) {
  return PageCount(static_cast<double>(count)) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string ShortKernel(std::string_view text, size_t most) {
  std::string line;
  for (char c : text) {
    const bool is_blank = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (!is_blank) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  if (line.ends_with(' ')) line.pop_back();
  if (line.size() <= most) return line;
  const size_t half = most / 2 - 3;
  return line.substr(0, CharacterAt(line, half)) + " … " + line.substr(CharacterAt(line, line.size() - half));
}

void WriteProse(Markup& out, std::string_view text, std::string_view css_class) {
  if (css_class.empty()) {
    out.Open("p");
  } else {
    out.Open("p", {{"class", std::string(css_class)}});
  }
  for (bool is_code = false; !text.empty(); is_code = !is_code) {
    const size_t end = text.find('`');
    if (is_code && end != std::string_view::npos) {
      out.Element("code", text.substr(0, end));
    } else {
      out.Text(text.substr(0, end));
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  out.Close("p");
}

void WriteKernel(Markup& out, std::string_view text) {
  const std::string line = ShortKernel(text);
  std::string_view rest = line;
  out.Open("code");
  while (!rest.empty()) {
    // Behind commas and brackets, before the next operation.
    size_t end = rest.find_first_of(",+(", 1);
    end = end == std::string_view::npos ? rest.size() : end + (rest[end] == '+' ? 0 : 1);
    out.Text(rest.substr(0, end));
    rest.remove_prefix(end);
    if (!rest.empty()) out.Empty("wbr");
  }
  out.Close("code");
}

}  // namespace hone::cli
