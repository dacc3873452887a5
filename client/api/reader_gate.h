// Who is inside, so that what they use may be released once they have left. Readers enter and leave wait-free, with one
// atomic addition each; a writer asks from time to time and never waits.
//
// Each slot counts those who entered and those who left, by what they enter for, and twice: newcomers take the pair
// that `phase_` names. A writer that has replaced what readers look up first sees the other pair even (stragglers that
// read the phase long ago), turns the phase, and then sees the first pair even: nobody was in either after the
// replacement, so whoever used what was replaced has left, and newcomers in any number cannot keep the writer from
// finding out. That a reader's entry is before its look-up, and the writer's replacement before its reading of the
// counters, in one order that all agree on (seq_cst), is what makes an even pair a proof: a reader that was not counted
// sees the replacement.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hone {

// A number for the calling thread, its own for as long as it lives; small where few threads were ever started.
inline size_t ThreadNumber() {
  static std::atomic<size_t> threads{0};
  static thread_local size_t number = threads.fetch_add(1, std::memory_order_relaxed);
  return number;
}

class ReaderGate {
  struct Pair {
    std::atomic<uint64_t> entered{0}, left{0};
  };

 public:
  // What somebody enters for: entries() tells calls alone.
  enum class Purpose : uint8_t { kCall, kLook };

  // Inside for as long as it lives. What is looked up while inside (by a seq_cst load) stays.
  class Entry {
   public:
    explicit Entry(ReaderGate& gate, Purpose purpose = Purpose::kCall)
        : pair_(gate.slots_[ThreadNumber() % kSlots].Of(purpose)[gate.phase_.load(std::memory_order_relaxed)]) {
      pair_.entered.fetch_add(1, std::memory_order_seq_cst);
    }
    ~Entry() { pair_.left.fetch_add(1, std::memory_order_release); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    Pair& pair_;
  };

  // One thread at a time, after it has replaced something (by a seq_cst store): waits from now on for those who may
  // still use what was there before.
  void BeginGrace() { turned_ = false; }

  // True once they have all left. REQUIRES: BeginGrace was called.
  bool GraceIsOver() {
    uint32_t phase = phase_.load(std::memory_order_relaxed);
    if (!IsEven(1 - phase)) return false;
    if (turned_) return true;
    phase_.store(1 - phase, std::memory_order_seq_cst);
    turned_ = true;
    return IsEven(phase);
  }

  // How many have entered for a call so far.
  uint64_t entries() const {
    uint64_t count = 0;
    for (const Slot& slot : slots_) {
      for (const Pair& pair : slot.calls) count += pair.entered.load(std::memory_order_relaxed);
    }
    return count;
  }

 private:
  static constexpr size_t kSlots = 16;  // threads beyond share: correct, and slower while they do
  struct alignas(64) Slot {
    Pair calls[2], looks[2];

    Pair* Of(Purpose purpose) { return purpose == Purpose::kCall ? calls : looks; }
  };

  // Those who left are read first: as many that entered later means that nobody was inside in between.
  bool IsEven(uint32_t phase) const {
    for (const Slot& slot : slots_) {
      for (const Pair* pair : {&slot.calls[phase], &slot.looks[phase]}) {
        uint64_t left = pair->left.load(std::memory_order_seq_cst);
        if (pair->entered.load(std::memory_order_seq_cst) != left) return false;
      }
    }
    return true;
  }

  Slot slots_[kSlots];
  alignas(64) std::atomic<uint32_t> phase_{0};
  bool turned_ = false;  // of the writer alone
};

}  // namespace hone
