// The process with the driver in it: opens devices, runs candidates one after the other, and stays. Nothing of the
// runner's is in it: it maps the arena's operands, copies them to the device and the outputs back.
#pragma once

#include "backends/processes/child_channel.h"

namespace hone {

// Answers kLaunch (an artifact, an arena, and where the status is if that is not in the arena) until the channel
// closes. What goes wrong with a candidate is in its CandidateStatus and in the outcome: kExitMisdeed if it failed
// while it ran, kExitDriver if the driver failed before. What the context is good for then, nobody says: the parent
// ends this process and starts another.
[[noreturn]] void RunDeviceProcess(ChildChannel channel);

// Sends kListed, the targets of the kind's devices, a line each, or kError.
[[noreturn]] void ListDevices(ChildChannel channel, const char* kind);

// Measures copies to the device with this target and back. Sends kCopied, PrintCopySpeed's text, or kError.
[[noreturn]] void MeasureCopies(ChildChannel channel, const char* target);

}  // namespace hone
