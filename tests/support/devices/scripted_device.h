// A kind of device that is there in tests alone: two devices whose programs are schedules in an envelope, and whose
// times are scripted, and one that code is built for though it is not here. It registers itself when the program
// starts, and is then served and tuned like any other: nothing else names it. For what a backend has to do, read
// scripted_device.cc beside backends/backend.h.
#pragma once

#include <string>
#include <string_view>

namespace hone::testing {

inline constexpr std::string_view kScriptedKind = "scripted";

// What a call takes under that schedule (its steps, without choices) on a device of that speed: 100 us under the
// default schedule, half to one and a half times as long under others, by their text.
double ScriptedUs(std::string_view schedule, bool is_default, double speed);

// From now on calls take so many times as long to whoever times them, as where others use the device.
void SlowScriptedDown(double times);
// How often calls were timed since then.
int ScriptedTimings();

// How often copies to such a device were measured; each time they are half as fast as the time before.
int ScriptedCopies();

}  // namespace hone::testing
