// The cells of the tables of `hone report`'s page.
#include <fmt/format.h>

#include <algorithm>

#include "client/cli/report/kernel_markup.h"
#include "client/cli/report/report_sections.h"

namespace hone::cli {

void WriteCell(Markup& out, std::string_view text, std::string_view label, std::string_view css_class) {
  if (label.empty() && css_class.empty()) {
    out.Element("td", text);
  } else if (label.empty()) {
    out.Element("td", text, {{"class", std::string(css_class)}});
  } else if (css_class.empty()) {
    out.Element("td", text, {{"data-l", std::string(label) + " "}});
  } else {
    out.Element("td", text, {{"class", std::string(css_class)}, {"data-l", std::string(label) + " "}});
  }
}

void WriteKernelCell(Markup& out, const ReportKernel& kernel) {
  out.Open("td", {{"class", "k"}, {"title", kernel.row.fingerprint}});
  WriteKernel(out, kernel.row.kernel);
  out.Close("td");
}

void WriteShareCell(Markup& out, double share, std::string_view label) {
  out.Open("td", {{"data-l", std::string(label) + " "}}).Text(PagePercent(share));
  out.Open("span", {{"class", "bar"}});
  out.Element("i", "", {{"style", fmt::format("width:{:.0f}%", 100 * std::clamp(share, 0.0, 1.0))}});
  out.Close("span").Close("td");
}

void WriteHead(Markup& out, std::initializer_list<HeadCell> cells) {
  out.Open("thead").Open("tr");
  for (const HeadCell& cell : cells) {
    if (cell.css_class.empty()) {
      out.Element("th", cell.text, {{"scope", "col"}});
    } else {
      out.Element("th", cell.text, {{"scope", "col"}, {"class", std::string(cell.css_class)}});
    }
  }
  out.Close("tr").Close("thead");
}

double RatioOf(double before, double after) { return after > 0 ? before / after : 1; }

}  // namespace hone::cli
