// One run of foreign code, as the runner describes it, and what the two share meanwhile: the runner's arena.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hone {

inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kGuardBytes = size_t{1} << 20;  // address space only; wide, for strides that went wrong
inline constexpr size_t kMaxOperands = 128;
inline constexpr size_t kMaxDynamicSizes = 1024;
inline constexpr size_t kMaxTimeSamples = 1000;
inline constexpr int kFewestTimeSamples = 5;  // that a median is taken of

// Where a buffer's bytes are, and where in its pages they lie. What nobody may touch stands on both sides.
struct BufferPlan {
  uint64_t bytes = 0;
  uint64_t slack = 0;         // from the start of the first page to the first byte
  uint64_t file_offset = 0;   // of the first page in the arena, a multiple of kPageBytes
  uint64_t repeat_bytes = 0;  // the file's part of that size is mapped again and again; 0: the file has all of it
  bool in_arena = true;       // else private memory, filled with the scratch pattern
  bool writable = false;

  uint64_t pages() const { return (slack + bytes + kPageBytes - 1) / kPageBytes; }
};

// A mapped buffer. `base` and `size` are the whole mapping, guards included, for munmap.
struct MappedBuffer {
  std::byte* data = nullptr;
  void* base = nullptr;
  size_t size = 0;
};

// kIo. `populate`: make all pages present now.
Result<MappedBuffer> MapBuffer(const BufferPlan& plan, int arena_fd, bool populate);
// How long a private buffer of `bytes` is placed so that it ends at its guard, if its alignment allows.
uint64_t SlackToEnd(uint64_t bytes, uint64_t alignment);

enum class RunMode : uint8_t {
  kCheck = 1,
  kMeasure = 2,
  kRehearse = 3,  // once, for nobody to see: its status is in memory of its own, and its outputs go nowhere
};
inline constexpr size_t kMostRehearsed = 16;  // at a time

struct CandidateSpec {
  RunMode mode = RunMode::kCheck;
  int32_t workers = 1;
  int64_t limit_ns = 0;              // of everything; the launcher kills after it
  std::vector<BufferPlan> operands;  // in the manifest's order
  std::vector<uint64_t> packed;      // bytes of each operand's packed form; 0: not packed
  uint64_t workspace = 0;
  std::vector<int64_t> sizes;  // the dynamic ones, as hone_entry takes them
  // kCheck: calls after the first.
  int32_t timed_runs = 0;
  // kMeasure: as TimeOptions.
  int64_t warmup_ns = 0, min_sample_ns = 0;
  int32_t samples = 0, max_samples = 0;
  double give_up_ns = 0, contender_ns = 0, narrow = 0;
};
std::string EncodeCandidateSpec(const CandidateSpec& spec);
Result<CandidateSpec> DecodeCandidateSpec(std::string_view body);

// How far it came.
enum class RunStage : uint32_t { kSetup = 0, kPack = 1, kEntry = 2, kRepeat = 3, kDone = 4 };

// What the calling convention has every function leave as it was, besides registers. Bits that changed.
struct ModeChange {
  uint32_t vector_control;  // MXCSR or FPCR, without the sticky flags, which any computation sets
  uint32_t x87_control;
  uint32_t x87_stack;  // not 0: values were left on it
  uint32_t direction;  // not 0: string instructions run backwards
  uint32_t tiles;      // not 0: AMX's registers are in use
  bool any() const { return (vector_control | x87_control | x87_stack | direction | tiles) != 0; }
};

// At the start of the arena, shared by runner and candidate. Foreign code could scribble here like anywhere else in its
// process: it can spoil its own timing and the wording of its own failure, never the comparison.
struct CandidateStatus {
  std::atomic<RunStage> stage;
  bool is_first;  // on a device: this code has not run there yet, so its driver may compile what it launches first
  int32_t return_code;  // of hone_entry or hone_pack if it was not 0
  int32_t operand;      // that was packed when it ended in kPack
  ModeChange mode;      // that it left behind
  int64_t pack_ns, first_ns, best_ns;
  // The first fault, if any.
  std::atomic<uint32_t> fault_signal;
  uint32_t fault_is_write;
  uint64_t fault_address, fault_stack;
  // Where the operands, their packed forms and the workspace were mapped; 0: not at all.
  struct Range {
    uint64_t begin, end;
  } operands[kMaxOperands], packed[kMaxOperands], workspace;
  // kMeasure.
  int32_t samples, disturbed, calls_per_sample;
  double sample_ns[kMaxTimeSamples];
  char setup_error[256];
};
inline constexpr size_t kStatusBytes = (sizeof(CandidateStatus) + kPageBytes - 1) / kPageBytes * kPageBytes;

inline constexpr int kExitDone = 0;
inline constexpr int kExitSetup = 90;    // before it ran, there was no memory or thread for it: setup_error says which
inline constexpr int kExitFault = 91;    // fault_… say what
inline constexpr int kExitMisdeed = 92;  // setup_error says what it did
inline constexpr int kExitDriver = 93;   // before it ran, the device or its driver failed: setup_error says how
inline constexpr int kExitLimit = 94;    // setup_error says what it takes more of than there is
inline constexpr int kExitRefused = 95;  // setup_error says why such code cannot be started

}  // namespace hone
