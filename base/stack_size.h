// Room for functions that call themselves as deep as the text that they read is nested.
#pragma once

namespace hone {

// From now on every thread that is started has as much stack as the deepest text takes, as have this process' first one
// and the processes that it starts, however little it was started with (ulimit -s). A hard limit below that holds for
// first threads.
void TakeDeepStacks();

}  // namespace hone
