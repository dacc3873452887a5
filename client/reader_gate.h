// Who is inside, so that what they use may be released once they have left. Readers enter and leave wait-free, with one
// atomic addition each; a writer asks from time to time and never waits.
//
// Two counters per slot, of which newcomers take the one that `phase_` names. A writer that has replaced what readers
// look up first sees the other counter empty (stragglers that read the phase long ago), turns the phase, and then sees
// the first one empty: both were empty after the replacement, so whoever used what was replaced has left, and newcomers
// in any number cannot keep the writer from finding out. That a reader's addition is before its look-up, and the
// writer's replacement before its reading of the counters, in one order that all agree on (seq_cst), is what makes an
// empty counter a proof: a reader that was not counted sees the replacement.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hone {

// A number for the calling thread, small and its own for as long as it lives.
inline size_t ThreadNumber() {
  static std::atomic<size_t> threads{0};
  static thread_local size_t number = threads.fetch_add(1, std::memory_order_relaxed);
  return number;
}

class ReaderGate {
 public:
  // Inside for as long as it lives. What is looked up while inside (by a seq_cst load) stays.
  class Entry {
   public:
    explicit Entry(ReaderGate& gate)
        : inside_(gate.slots_[ThreadNumber() % kSlots].inside[gate.phase_.load(std::memory_order_relaxed)]) {
      inside_.fetch_add(1, std::memory_order_seq_cst);
    }
    ~Entry() { inside_.fetch_sub(1, std::memory_order_release); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    std::atomic<uint32_t>& inside_;
  };

  // One thread at a time, after it has replaced something (by a seq_cst store): waits from now on for those who may
  // still use what was there before.
  void BeginGrace() { turned_ = false; }

  // True once they have all left. REQUIRES: BeginGrace was called.
  bool GraceIsOver() {
    uint32_t phase = phase_.load(std::memory_order_relaxed);
    if (!IsEmpty(1 - phase)) return false;
    if (turned_) return true;
    phase_.store(1 - phase, std::memory_order_seq_cst);
    turned_ = true;
    return IsEmpty(phase);
  }

 private:
  static constexpr size_t kSlots = 16;  // threads beyond share: correct, and slower while they do
  struct alignas(64) Slot {
    std::atomic<uint32_t> inside[2] = {};
  };

  bool IsEmpty(uint32_t phase) const {
    for (const Slot& slot : slots_) {
      if (slot.inside[phase].load(std::memory_order_seq_cst) != 0) return false;
    }
    return true;
  }

  Slot slots_[kSlots];
  alignas(64) std::atomic<uint32_t> phase_{0};
  bool turned_ = false;  // of the writer alone
};

}  // namespace hone
