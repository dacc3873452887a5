// A loop whose iterations do not depend on each other, on threads that live as long as it does. For work of tenths of
// milliseconds a piece: beginning a thread takes some tens of microseconds.
#pragma once

#include <cstddef>
#include <functional>

namespace hone {

// Calls work(0) … work(count - 1), each once, on at most `threads` threads of which the caller's is one, and returns
// when all of them are done. They begin in order. Threads take over the caller's scheduling policy. Where the system
// gives no more threads, those that there are do the work.
void ForEachIndex(size_t count, int threads, const std::function<void(size_t index)>& work);

}  // namespace hone
