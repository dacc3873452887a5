// What a builder is asked for and answers: kernel text and schedule in, a checked artifact of the target's kind out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/manifest.h"
#include "ir/target.h"

namespace hone {

struct BuildRequest {
  std::string kernel;    // anything ParseKernel reads
  std::string schedule;  // ir/schedule/schedule.h's text form; "" asks for the default schedule
  Target target;
  // For whom, a uid: what one user's text has made of a builder builds for no other. Not sent. Nullopt: for nobody's
  // sake, as in a search, which compares all that it keeps.
  std::optional<uint32_t> user = {};
};

// Microseconds spent in each step, for the table of where a miss' time goes.
struct BuildTimes {
  double parse = 0, schedule = 0, lower = 0, emit = 0, optimize = 0, codegen = 0, link = 0;
};

struct BuildOutput {
  std::string schedule;           // the schedule in its text form, also when it was the default
  Manifest manifest;              // also inside the object
  std::vector<std::byte> object;  // the artifact, reproducible: same request, same bytes
  BuildTimes times;
};

}  // namespace hone
