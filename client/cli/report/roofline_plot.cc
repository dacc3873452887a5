#include "client/cli/report/roofline_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "client/cli/report/kernel_markup.h"
#include "client/cli/report/svg_plot.h"

namespace hone::cli {
namespace {

constexpr double kTextHeight = 11;
constexpr double kTextWidth = 6.2;   // of a character
constexpr double kPoint = 4;         // radius …
constexpr double kSmallPoint = 2.5;  // … of defaults among many
constexpr size_t kMany = 150;
constexpr double kAreaOfALabel = 9'000;  // of the plot: more numbers than that hide the picture

double Intensity(const ReportKernel& kernel) { return kernel.roofline.flops / kernel.roofline.operand_bytes; }
double Gflops(const ReportKernel& kernel) { return kernel.roofline.flops / kernel.time_us / 1e3; }

bool CanBePlaced(const ReportKernel& kernel) {
  const Roofline& roofline = kernel.roofline;
  return !kernel.is_removed && roofline.flops > 0 && roofline.operand_bytes > 0 && kernel.time_us > 0 &&
         roofline.peak_gflops > 0 && roofline.read_gb_s > 0;
}

// Labels that were placed so far, and what they may not cover.
class Room {
 public:
  explicit Room(Box frame) : frame_(frame) {}
  void Take(const Box& box) { taken_.push_back(box); }
  // What may be covered, if there is no other way.
  void Cross(const Box& box) { crossed_.push_back(box); }
  bool IsFree(const Box& box) const { return frame_.Holds(box) && AreClear(taken_, box); }
  bool IsQuiteFree(const Box& box) const { return IsFree(box) && AreClear(crossed_, box); }

 private:
  static bool AreClear(const std::vector<Box>& boxes, const Box& box) {
    return std::none_of(boxes.begin(), boxes.end(), [&](const Box& other) { return other.Meets(box); });
  }

  Box frame_;
  std::vector<Box> taken_, crossed_;
};

void DrawRoof(SvgPlot& plot, Room& room, double x1, double y1, double x2, double y2) {
  plot.Line(x1, y1, x2, y2, "roof");
  const double steps = std::max(1.0, std::hypot(x2 - x1, y2 - y1) / 4);
  for (double step = 0; step <= steps; ++step) {
    const double x = x1 + (x2 - x1) * step / steps, y = y1 + (y2 - y1) * step / steps;
    room.Cross({x - 1, y - 1, x + 1, y + 1});
  }
}

std::string PointTitle(const ReportKernel& kernel) {
  return fmt::format("{} {}\n{} GFLOP/s at {} flop/byte, {} of what {} allows\n{}, {}", kernel.number,
                     ShortKernel(kernel.row.kernel), PageNumber(Gflops(kernel)), PageNumber(Intensity(kernel)),
                     PagePercent(kernel.reached()),
                     kernel.bound->is_memory ? "reading from " + kernel.roofline.level : "arithmetic",
                     PageTime(kernel.time_us), StateText(kernel));
}

std::string PointClass(const ReportKernel& kernel) {
  std::string name = kernel.row.origin == "tuned" ? "pt tuned" : kernel.row.origin == "default" ? "pt" : "pt other";
  return kernel.row.pinned ? name + " pinned" : name;
}

void DrawRoofs(SvgPlot& plot, const RooflinePlotData& data, const Scale& x, const Scale& y, const Box& frame,
               Room& room) {
  const double peak = data.peak_gflops;
  const double fastest = data.memory.front().read_gb_s;
  const double peak_from = std::max(peak / fastest, x.low());
  if (peak_from < x.high()) DrawRoof(plot, room, x(peak_from), y(peak), frame.right, y(peak));
  const std::string words = PageNumber(peak) + " GFLOP/s";
  plot.Label(frame.right - 4, y(peak) - 5, Anchor::kEnd, words, "rooflabel");
  room.Take({frame.right - 8 - static_cast<double>(words.size()) * kTextWidth, y(peak) - 5 - kTextHeight, frame.right,
             y(peak)});
  // GFLOP/s = GB/s × flop/byte: parallel lines, at 45 degrees only if both decades are equally long.
  const double run = x(10 * x.low()) - x(x.low()), rise = y(10 * y.low()) - y(y.low());
  const double degrees = std::atan2(rise, run) * 180 / 3.14159265358979;
  const double length = std::hypot(run, rise);
  for (const MemoryRoof& roof : data.memory) {
    const double from = std::max(x.low(), y.low() / roof.read_gb_s);
    const double to = std::min(peak / roof.read_gb_s, x.high());
    if (from >= to) continue;
    DrawRoof(plot, room, x(from), y(from * roof.read_gb_s), x(to), y(to * roof.read_gb_s));
    // Above its line, as near to its beginning as nothing is in the way.
    const std::string text = fmt::format("{} {} GB/s", roof.level, PageNumber(roof.read_gb_s));
    const double text_length = static_cast<double>(text.size()) * kTextWidth;
    const double longest = std::hypot(x(to) - x(from), y(to * roof.read_gb_s) - y(from * roof.read_gb_s));
    for (double begin = 10; begin + text_length < longest; begin += 8) {
      const double px = x(from) + run / length * begin, py = y(from * roof.read_gb_s) + rise / length * begin;
      std::vector<Box> boxes;
      for (double at = 0; at < text_length; at += kTextWidth) {
        const double left = px + at * run / length, bottom = py + at * rise / length;
        boxes.push_back({left - 4, bottom - 15, left + 6, bottom - 1});
      }
      if (!std::all_of(boxes.begin(), boxes.end(), [&](const Box& box) { return room.IsFree(box); })) continue;
      for (const Box& box : boxes) room.Take(box);
      plot.Label(px + 4 * rise / length, py - 4 * run / length, Anchor::kStart, text, "rooflabel", degrees);
      break;  // without room for it, the caption says what it would
    }
  }
}

struct Place {
  const ReportKernel* kernel;
  double x, y, radius;
};

void DrawPoints(SvgPlot& plot, const std::vector<Place>& places, size_t most_labels, Room& room) {
  // The heaviest last, so that it is on top.
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    Markup& out = plot.out();
    out.Open("a", {{"href", "#" + AnchorOf(*place->kernel)}});
    out.Open("circle", {{"cx", Coordinate(place->x)},
                        {"cy", Coordinate(place->y)},
                        {"r", Coordinate(place->radius)},
                        {"class", PointClass(*place->kernel)}});
    out.Element("title", PointTitle(*place->kernel)).Close("circle").Close("a");
  }
  // The heaviest first: it gets its number, others as there is room.
  for (size_t i = 0; i < std::min(places.size(), most_labels); ++i) {
    const Place& place = places[i];
    const std::string text = std::to_string(place.kernel->number);
    const double width = static_cast<double>(text.size()) * kTextWidth + 2;
    struct Spot {
      double dx, dy;  // of the label's anchor and base line
      Anchor anchor;
    };
    static constexpr std::array<Spot, 6> kSpots = {{{6, 4, Anchor::kStart},
                                                    {-6, 4, Anchor::kEnd},
                                                    {0, -7, Anchor::kMiddle},
                                                    {0, 15, Anchor::kMiddle},
                                                    {5, -5, Anchor::kStart},
                                                    {5, 13, Anchor::kStart}}};
    auto try_spots = [&](bool quite_free) {
      for (const Spot& spot : kSpots) {
        const double at_x = place.x + spot.dx, at_y = place.y + spot.dy;
        const double left = at_x - (spot.anchor == Anchor::kStart ? 0
                                    : spot.anchor == Anchor::kEnd ? width
                                                                  : width / 2);
        const Box box{left, at_y - kTextHeight + 1, left + width, at_y + 1};
        if (!(quite_free ? room.IsQuiteFree(box) : room.IsFree(box))) continue;
        room.Take(box);
        plot.Label(at_x, at_y, spot.anchor, text, "ptlabel");
        return true;
      }
      return false;
    };
    if (!try_spots(true)) try_spots(false);
  }
}

}  // namespace

std::string AnchorOf(const ReportKernel& kernel) { return "k" + std::to_string(kernel.number); }

std::vector<RooflinePlotData> RooflinesOf(const std::vector<ReportKernel>& kernels) {
  std::map<uint32_t, RooflinePlotData> by_threads;
  for (const ReportKernel& kernel : kernels) {
    if (!CanBePlaced(kernel)) continue;
    RooflinePlotData& data = by_threads[kernel.threads];
    data.threads = kernel.threads;
    data.peak_gflops = std::max(data.peak_gflops, kernel.roofline.peak_gflops);
    auto roof = std::find_if(data.memory.begin(), data.memory.end(),
                             [&](const MemoryRoof& known) { return known.level == kernel.roofline.level; });
    if (roof == data.memory.end()) roof = data.memory.insert(roof, {kernel.roofline.level, 0});
    roof->read_gb_s = std::max(roof->read_gb_s, kernel.roofline.read_gb_s);
    data.kernels.push_back(&kernel);
  }
  std::vector<RooflinePlotData> plots;
  for (auto& [_, data] : by_threads) {
    std::sort(data.memory.begin(), data.memory.end(), [](const MemoryRoof& a, const MemoryRoof& b) {
      return std::tie(b.read_gb_s, a.level) < std::tie(a.read_gb_s, b.level);
    });
    plots.push_back(std::move(data));
  }
  std::sort(plots.begin(), plots.end(), [](const RooflinePlotData& a, const RooflinePlotData& b) {
    if (a.kernels.size() != b.kernels.size()) return a.kernels.size() > b.kernels.size();
    return a.threads < b.threads;
  });
  return plots;
}

void DrawRoofline(Markup& out, const RooflinePlotData& data, double width, double height, std::string_view css_class) {
  const Box frame{46, 10, width - 12, height - 38};
  // Every point, and the ridge of the fastest memory, within.
  double least_x = data.peak_gflops / data.memory.front().read_gb_s, most_x = least_x;
  double least_y = data.peak_gflops, most_y = data.peak_gflops;
  for (const ReportKernel* kernel : data.kernels) {
    least_x = std::min(least_x, Intensity(*kernel));
    most_x = std::max(most_x, Intensity(*kernel));
    least_y = std::min(least_y, Gflops(*kernel));
    most_y = std::max(most_y, Gflops(*kernel));
  }
  const Scale x = Scale::Log(least_x / 2.5, most_x * 3, frame.left, frame.right);
  const Scale y = Scale::Log(std::min(least_y / 2, most_y / 30), most_y * 2, frame.bottom, frame.top);
  SvgPlot plot(out, width, height,
               fmt::format("Roofline of {} kernels on {} thread{}", data.kernels.size(), data.threads,
                           data.threads == 1 ? "" : "s"),
               css_class);
  plot.GridX(x, frame, LogTicks(x.low(), x.high()));
  plot.GridY(y, frame, LogTicks(y.low(), y.high()));
  plot.Line(frame.left, frame.bottom, frame.right, frame.bottom, "axis");
  plot.Line(frame.left, frame.top, frame.left, frame.bottom, "axis");
  plot.Label((frame.left + frame.right) / 2, height - 6, Anchor::kMiddle, "flop per byte of operands", "axislabel");
  plot.Label(11, (frame.top + frame.bottom) / 2, Anchor::kMiddle, "GFLOP/s", "axislabel", -90);
  Room room(frame);
  std::vector<Place> places;
  for (const ReportKernel* kernel : data.kernels) {
    const bool is_small = data.kernels.size() > kMany && kernel->row.origin == "default";
    const double radius = is_small ? kSmallPoint : kPoint;
    const Place& place = places.emplace_back(Place{kernel, x(Intensity(*kernel)), y(Gflops(*kernel)), radius});
    room.Take({place.x - radius, place.y - radius, place.x + radius, place.y + radius});
  }
  DrawRoofs(plot, data, x, y, frame, room);
  DrawPoints(plot, places, static_cast<size_t>(width * height / kAreaOfALabel), room);
  plot.End();
}

}  // namespace hone::cli
