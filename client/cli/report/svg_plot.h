// What plots are drawn with: scales from values to places, round numbers for the ticks of axes, lines and labels. A
// plot has the size it is made for and scales as a picture does.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/cli/report/markup.h"

namespace hone::cli {

// From values low … high to places from … to; places may fall where values rise, as SVG counts downwards.
class Scale {
 public:
  static Scale Linear(double low, double high, double from, double to) { return {low, high, from, to, false}; }
  // REQUIRES: 0 < low < high.
  static Scale Log(double low, double high, double from, double to) { return {low, high, from, to, true}; }

  double operator()(double value) const;  // beyond the ends, too
  double low() const { return low_; }
  double high() const { return high_; }
  bool is_log() const { return is_log_; }
  double from() const { return from_; }
  double to() const { return to_; }

 private:
  Scale(double low, double high, double from, double to, bool is_log);

  double low_, high_, from_, to_;
  bool is_log_;
};

// Round numbers from low to high: 1, 2 or 5 times a power of ten apart, at most `most` of them.
std::vector<double> LinearTicks(double low, double high, int most);
// Powers of ten; with less than two of them between low and high, their double and fivefold, too.
std::vector<double> LogTicks(double low, double high);
std::string TickText(double value);  // "0.05", "200", "5k", "2M"

// Where something is drawn, and a box around it that nothing else may cover.
struct Box {
  double left = 0, top = 0, right = 0, bottom = 0;
  bool Meets(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
  bool Holds(const Box& other) const {
    return left <= other.left && other.right <= right && top <= other.top && other.bottom <= bottom;
  }
};

enum class Anchor { kStart, kMiddle, kEnd };

// One <svg> element of `width` by `height` units, from construction to End.
class SvgPlot {
 public:
  // `label`: what it shows, for those who do not see it.
  SvgPlot(Markup& out, double width, double height, std::string_view label, std::string_view css_class);

  void Line(double x1, double y1, double x2, double y2, std::string_view css_class);
  // Places in turn.
  void Path(const std::vector<std::pair<double, double>>& places, std::string_view css_class);
  void Label(double x, double y, Anchor anchor, std::string_view text, std::string_view css_class = "tick",
             double degrees = 0);
  // Grid lines with the numbers left of and below the frame.
  void GridX(const Scale& x, const Box& frame, const std::vector<double>& ticks);
  void GridY(const Scale& y, const Box& frame, const std::vector<double>& ticks);
  Markup& out() { return out_; }
  void End() { out_.Close("svg"); }

 private:
  Markup& out_;
};

std::string Coordinate(double value);  // to a tenth: "12.5"

}  // namespace hone::cli
