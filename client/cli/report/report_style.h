// The style sheet of `hone report`'s page.
#pragma once

#include <string_view>

namespace hone::cli {

// Has neither "<" nor "&", which a style element reads differently in HTML and in XML.
extern const std::string_view kReportStyle;

}  // namespace hone::cli
