// How a test is skipped that has no device. Where a driver is installed that makes the processor one, that is a
// failure: the test would never run again, and nobody would notice.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "backends/gpu/driver_files.h"
#include "ir/target.h"

namespace hone::testing {

// Its file; "": none is, or variables hide it.
inline std::string InstalledDriver(std::string_view kind) {
  for (const std::string& file : FindDriverFiles(kind))
    if (file.find(kind == kOpenClKind ? "pocl" : "lvp_icd") != std::string::npos) return file;
  return "";
}

}  // namespace hone::testing

#define HONE_SKIP_FOR_WANT_OF(kind, why)                                                \
  do {                                                                                  \
    const std::string installed = ::hone::testing::InstalledDriver(kind);               \
    if (!installed.empty()) FAIL() << installed << " is installed, and yet: " << (why); \
    GTEST_SKIP() << "[SKIP] " << (why);                                                 \
  } while (false)
