#include "client/cli/report/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace hone::cli {
namespace {

// Ticks fall on the ends in spite of rounding.
constexpr double kSlack = 1e-9;

const char* AnchorName(Anchor anchor) {
  return anchor == Anchor::kStart ? "start" : anchor == Anchor::kMiddle ? "middle" : "end";
}

}  // namespace

Scale::Scale(double low, double high, double from, double to, bool is_log)
    : low_(low), high_(high), from_(from), to_(to), is_log_(is_log) {
  HONE_CHECK(low < high && (!is_log || low > 0));
}

double Scale::operator()(double value) const {
  const double share = is_log_ ? std::log(value / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
  return from_ + share * (to_ - from_);
}

std::vector<double> LinearTicks(double low, double high, int most) {
  HONE_CHECK(low < high && most >= 2);
  const double power = std::pow(10, std::floor(std::log10((high - low) / most)));
  double step = power;
  for (double factor : {1.0, 2.0, 5.0, 10.0, 20.0}) {
    step = factor * power;
    if (std::floor(high / step + kSlack) - std::ceil(low / step - kSlack) + 1 <= most) break;
  }
  std::vector<double> ticks;
  for (double i = std::ceil(low / step - kSlack); i <= high / step + kSlack; ++i)
    ticks.push_back(i * step + 0.0);  // no "-0"
  return ticks;
}

std::vector<double> LogTicks(double low, double high) {
  HONE_CHECK(0 < low && low < high);
  const int first = static_cast<int>(std::floor(std::log10(low) + kSlack));
  const int last = static_cast<int>(std::ceil(std::log10(high) - kSlack));
  std::vector<double> tens, all;
  for (int power = first; power <= last; ++power) {
    for (double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10, power);
      if (tick < low * (1 - kSlack) || tick > high * (1 + kSlack)) continue;
      if (factor == 1.0) tens.push_back(tick);
      all.push_back(tick);
    }
  }
  return tens.size() > 2 ? tens : all;
}

std::string TickText(double value) {
  const double size = std::abs(value);
  if (size >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (size >= 1e3) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:.4g}", value);
}

std::string Coordinate(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

SvgPlot::SvgPlot(Markup& out, double width, double height, std::string_view label, std::string_view css_class)
    : out_(out) {
  out_.Open("svg", {{"xmlns", "http://www.w3.org/2000/svg"},
                    {"viewBox", fmt::format("0 0 {} {}", Coordinate(width), Coordinate(height))},
                    {"class", std::string(css_class)},
                    {"role", "img"},
                    {"aria-label", std::string(label)}});
}

void SvgPlot::Line(double x1, double y1, double x2, double y2, std::string_view css_class) {
  out_.Empty("line", {{"x1", Coordinate(x1)},
                      {"y1", Coordinate(y1)},
                      {"x2", Coordinate(x2)},
                      {"y2", Coordinate(y2)},
                      {"class", std::string(css_class)}});
}

void SvgPlot::Path(const std::vector<std::pair<double, double>>& places, std::string_view css_class) {
  std::string steps;
  for (auto [x, y] : places) steps += fmt::format("{}{} {}", steps.empty() ? "M" : "L", Coordinate(x), Coordinate(y));
  out_.Empty("path", {{"d", steps}, {"class", std::string(css_class)}});
}

void SvgPlot::Label(double x, double y, Anchor anchor, std::string_view text, std::string_view css_class,
                    double degrees) {
  if (degrees == 0) {
    out_.Element("text", text,
                 {{"x", Coordinate(x)},
                  {"y", Coordinate(y)},
                  {"text-anchor", AnchorName(anchor)},
                  {"class", std::string(css_class)}});
    return;
  }
  out_.Element(
      "text", text,
      {{"transform", fmt::format("translate({} {}) rotate({})", Coordinate(x), Coordinate(y), Coordinate(degrees))},
       {"text-anchor", AnchorName(anchor)},
       {"class", std::string(css_class)}});
}

void SvgPlot::GridX(const Scale& x, const Box& frame, const std::vector<double>& ticks) {
  for (double tick : ticks) {
    Line(x(tick), frame.top, x(tick), frame.bottom, "grid");
    Label(x(tick), frame.bottom + 14, Anchor::kMiddle, TickText(tick));
  }
}

void SvgPlot::GridY(const Scale& y, const Box& frame, const std::vector<double>& ticks) {
  for (double tick : ticks) {
    Line(frame.left, y(tick), frame.right, y(tick), "grid");
    Label(frame.left - 6, y(tick) + 3.5, Anchor::kEnd, TickText(tick));
  }
}

}  // namespace hone::cli
