// AMX's tiles: eight registers of a kilobyte, which Linux gives to a process that asks for them
// (Documentation/arch/x86/xstate.rst).
#pragma once

namespace hone {

// Whether this process may use them. Asks the first time, for the process and what it forks; so before a filter of
// system calls is in force. False where the processor or Linux has none, or refuses. Thread-safe.
bool MayUseTiles();

// Whether this thread has left something in them: every switch to another thread saves that.
bool HasTilesInUse();

}  // namespace hone
