// How the report's page writes kernels, times and counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "client/cli/report/markup.h"

namespace hone::cli {

std::string PageTime(double us);                          // "12.3 µs"; "–" for 0
std::string PageDate(int64_t unix_time);                  // "2026-11-21 13:05 UTC"
std::string PageCount(double count);                      // "1,234,567"
std::string PageNumber(double value);                     // to three digits: "1.25", "16.5", "1,024"
std::string PageRatio(double ratio);                      // "1.85×"; "–" below kLeastRatio
std::string PagePercent(double share);                    // "61 %"; "–" for 0
std::string Plural(size_t count, std::string_view noun);  // "1 kernel", "2,000 kernels"

inline constexpr double kLeastRatio = 1.005;  // that is worth to be told: "1.01×" once it is rounded

// A kernel on one line; one of the kernel language, which may be long, is cut in the middle.
std::string ShortKernel(std::string_view text, size_t most = 160);
// A paragraph; what stands between backticks is code.
void WriteProse(Markup& out, std::string_view text, std::string_view css_class = "");
// A kernel as ShortKernel, with places where lines may break.
void WriteKernel(Markup& out, std::string_view text);

}  // namespace hone::cli
