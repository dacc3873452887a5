// A libcuda.so.1 without a device: CUDA's driver API as far as backends/drivers/cuda_context.cc calls it, with the
// host's memory as a device's. It is stricter than the real one where that is what tests want: calls need a current
// context, copies lie inside one allocation, arguments of launches are aligned. "Code" is a file that CheckCubin takes;
// which function a launch means, its name says (kFunctions). Code that honed compiled for a kernel of one stage is
// taken for one that doubles floats, and takes the longer the more blocks it has. Each device has one context, and an
// application may make one more; launches end before they return, and FakeCudaHold says otherwise of events. One thread
// at a time is in it.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "backends/drivers/cuda_driver.h"

namespace {

using namespace hone::cuda;

constexpr Status kInvalidContext = 201, kOperatingSystem = 304, kIllegalAddress = 700;
constexpr size_t kDeviceBytes = size_t{1} << 30;

struct State {
  std::map<Address, size_t> memory;  // begin, bytes
  std::map<Address, Context> owner;  // of memory
  size_t allocated = 0;
  int contexts = 0, modules = 0, streams = 0, events = 0;
  Status sticky = kSuccess;                     // what every later call answers
  float clock_ms = 0;                           // of the device: a launch takes half of one
  bool holds = false;                           // events do not come
  void (*at_next_code)() = nullptr;             // what befalls the process when a function is looked for again
  std::map<Function, unsigned> dynamic_shared;  // bytes that were asked for
};
State state;
std::mutex mutex;
thread_local std::vector<Context> current;  // the last one is
char contexts[3];                           // of both devices, and one that an application made
Context ContextOf(Device device) { return reinterpret_cast<Context>(&contexts[device]); }
bool IsContext(Context context) { return context >= ContextOf(0) && context <= ContextOf(2); }

struct FakeStream {
  Context context;
};

// Why a call that needs a context fails, or kSuccess.
Status Refusal() {
  if (state.sticky != kSuccess) return state.sticky;
  return current.empty() || !IsContext(current.back()) || state.contexts == 0 ? kInvalidContext : kSuccess;
}

#define FAKE_LOCK() const std::lock_guard lock(mutex)
// What such a call begins with.
#define FAKE_ENTER() \
  FAKE_LOCK();       \
  if (const Status refusal = Refusal(); refusal != kSuccess) return refusal

bool Holds(Address address, size_t bytes) {
  auto after = state.memory.upper_bound(address);
  if (after == state.memory.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return address >= begin && address - begin <= size && bytes <= size - (address - begin);
}

bool lies = false;  // what is computed is wrong, and no call says so

struct Call {
  unsigned threads;
  void** parameters;
  float* Pointer(int i) const { return *static_cast<float**>(parameters[i]); }
};

void Twice(const Call& call) {
  for (unsigned i = 0; i < call.threads; ++i) call.Pointer(1)[i] = call.Pointer(0)[i] * (lies ? 5 : 2);
}
// All that lies there, without the bytes that honed puts around what it checks.
void TwiceAll(const Call& call) {
  const auto address = reinterpret_cast<Address>(call.Pointer(0));
  const auto& [begin, size] = *std::prev(state.memory.upper_bound(address));
  const size_t guards = address - begin;
  for (size_t i = 0; i < (size - 2 * guards) / sizeof(float); ++i) call.Pointer(1)[i] = call.Pointer(0)[i] * 2;
}
void Thrice(const Call& call) {
  for (unsigned i = 0; i < call.threads; ++i) call.Pointer(1)[i] = call.Pointer(0)[i] * 3;
}
void Stray(const Call& call) {
  Twice(call);
  call.Pointer(1)[-1] = 1;
}
void Fault(const Call&) { state.sticky = kIllegalAddress; }
void Break() { state.sticky = kIllegalAddress; }
void End() { ::_exit(0); }
// Right itself, and the last thing that is: what comes next finds the device lost, or the process ended.
void TwiceThenBreaks(const Call& call) {
  Twice(call);
  state.at_next_code = Break;
}
void TwiceThenEnds(const Call& call) {
  Twice(call);
  state.at_next_code = End;
}
// Right itself, and the last thing that is: whatever runs later in this process is wrong.
void TwiceThenLies(const Call& call) {
  Twice(call);
  lies = true;
}
// As drivers do that compile at the first launch.
void TwiceAfterAWhile(const Call& call) {
  static bool is_compiled = false;
  if (!std::exchange(is_compiled, true)) std::this_thread::sleep_for(std::chrono::milliseconds(400));
  Twice(call);
}
void TwiceSlowly(const Call& call) {
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  Twice(call);
}
void Endless(const Call&) {
  for (volatile int forever = 1; forever != 0;) continue;
}

struct Known {
  std::string_view name;
  void (*run)(const Call&);
  float block_ms = 0;  // what a block takes, beside half a millisecond for all of them
};
constexpr Known kFunctions[] = {{"twice", Twice},
                                {"hone_0_t1", TwiceAll, 0.01F},
                                {"thrice", Thrice},
                                {"stray", Stray},
                                {"fault", Fault},
                                {"twice_then_breaks", TwiceThenBreaks},
                                {"twice_then_ends", TwiceThenEnds},
                                {"twice_then_lies", TwiceThenLies},
                                {"endless", Endless},
                                {"twice_slowly", TwiceSlowly},
                                {"twice_after_a_while", TwiceAfterAWhile}};

}  // namespace

extern "C" {

// For tests in the same process: what was made and not released.
__attribute__((visibility("default"))) int FakeCudaHeld() {
  FAKE_LOCK();
  return state.contexts + state.modules + state.streams + state.events + static_cast<int>(state.memory.size());
}

// Whether work that was enqueued is held back, as if the device were still at it.
__attribute__((visibility("default"))) void FakeCudaHold(bool holds) {
  FAKE_LOCK();
  state.holds = holds;
}

#define FAKE __attribute__((visibility("default"))) Status

// As NVIDIA's, it writes to its threads' names in /proc, and does not start where it cannot.
FAKE cuInit(unsigned) {
  char name[64] = "";
  const std::string path = "/proc/self/task/" + std::to_string(::gettid()) + "/comm";
  std::FILE* const file = std::fopen(path.c_str(), "r");
  if (file == nullptr || std::fgets(name, sizeof name, file) == nullptr || std::fclose(file) != 0)
    return kOperatingSystem;
  std::FILE* const again = std::fopen(path.c_str(), "w");
  if (again == nullptr) return kOperatingSystem;
  std::fputs(name, again);
  return std::fclose(again) == 0 ? kSuccess : kOperatingSystem;
}
FAKE cuDriverGetVersion(int* version) { return *version = 12040, kSuccess; }
FAKE cuGetErrorString(Status code, const char** text) {
  *text = code == kOutOfMemory      ? "out of memory"
          : code == kIllegalAddress ? "an illegal memory access was encountered"
                                    : "unknown error";
  return kSuccess;
}
FAKE cuDeviceGetCount(int* count) { return *count = 2, kSuccess; }
FAKE cuDeviceGet(Device* device, int i) { return *device = i, kSuccess; }
FAKE cuDeviceGetName(char* name, int size, Device device) {
  std::snprintf(name, static_cast<size_t>(size), "Fake GPU %d", device);
  return kSuccess;
}
FAKE cuDeviceGetAttribute(int* value, Attribute attribute, Device device) {
  const std::map<Attribute, int> values = {{kMaxThreadsPerBlock, 1024},
                                           {kMaxSharedPerBlock, 49152},
                                           {kMaxSharedPerBlockOptIn, 101376},
                                           {kMultiprocessors, 3},
                                           {kL2Bytes, 1 << 20},
                                           {kMajor, 8},
                                           {kMinor, 6},
                                           {kComputeMode, device == 0 ? 0 : kComputeModeProhibited}};
  const auto found = values.find(attribute);
  if (found == values.end()) return kInvalidValue;
  return *value = found->second, kSuccess;
}
FAKE cuDevicePrimaryCtxRetain(Context* context, Device device) {
  FAKE_LOCK();
  return ++state.contexts, *context = ContextOf(device), kSuccess;
}
FAKE cuDevicePrimaryCtxRelease_v2(Device) {
  FAKE_LOCK();
  return --state.contexts, kSuccess;
}
FAKE cuCtxCreate_v2(Context* context, unsigned, Device) {
  FAKE_LOCK();
  current.push_back(ContextOf(2));
  return ++state.contexts, *context = ContextOf(2), kSuccess;
}
FAKE cuCtxDestroy_v2(Context) {
  FAKE_LOCK();
  return --state.contexts, kSuccess;
}
FAKE cuCtxPushCurrent_v2(Context context) {
  FAKE_LOCK();
  return current.push_back(context), state.sticky;
}
FAKE cuCtxPopCurrent_v2(Context* context) {
  if (current.empty()) return kInvalidContext;
  *context = current.back();
  return current.pop_back(), kSuccess;
}
FAKE cuCtxGetCurrent(Context* context) { return *context = current.empty() ? nullptr : current.back(), kSuccess; }
FAKE cuCtxGetDevice(Device* device) {
  FAKE_ENTER();
  return *device = current.back() == ContextOf(0) ? 0 : 1, kSuccess;
}

FAKE cuModuleLoadDataEx(Module* module, const void* image, unsigned options, JitOption* option, void** value) {
  FAKE_ENTER();
  if (std::memcmp(image, "\177ELF", 4) != 0) {
    for (unsigned i = 0; i < options; ++i)
      if (option[i] == kJitErrorLog) std::strcpy(static_cast<char*>(value[i]), "no such code");
    return kInvalidImage;
  }
  return ++state.modules, *module = reinterpret_cast<Module>(&state), kSuccess;
}
FAKE cuModuleUnload(Module) {
  FAKE_LOCK();
  return --state.modules, kSuccess;
}
FAKE cuModuleGetFunction(Function* function, Module, const char* name) {
  FAKE_LOCK();
  if (std::string_view(name) == "breaks") Break();
  if (std::string_view(name) == "ends") End();
  if (state.at_next_code != nullptr) state.at_next_code();
  if (const Status refusal = Refusal(); refusal != kSuccess) return refusal;
  const auto* found = std::ranges::find(kFunctions, std::string_view(name), &Known::name);
  if (found == std::end(kFunctions)) return kNotFound;
  *function = reinterpret_cast<Function>(const_cast<Known*>(found));
  return kSuccess;
}

FAKE cuFuncSetAttribute(Function function, FunctionAttribute attribute, int value) {
  FAKE_ENTER();
  if (attribute != kMaxDynamicSharedBytes || value > 101376) return kInvalidValue;
  return state.dynamic_shared[function] = static_cast<unsigned>(value), kSuccess;
}

FAKE cuMemAlloc_v2(Address* address, size_t bytes) {
  FAKE_ENTER();
  if (bytes == 0) return kInvalidValue;
  if (bytes > kDeviceBytes - state.allocated) return kOutOfMemory;
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  *address = reinterpret_cast<Address>(memory);
  state.memory[*address] = bytes;
  state.owner[*address] = current.back();
  state.allocated += bytes;
  return kSuccess;
}
FAKE cuMemFree_v2(Address address) {
  FAKE_ENTER();
  const auto found = state.memory.find(address);
  if (found == state.memory.end()) return kInvalidValue;
  state.allocated -= found->second;
  state.memory.erase(found);
  state.owner.erase(address);
  std::free(reinterpret_cast<void*>(address));
  return kSuccess;
}
FAKE cuPointerGetAttribute(void* value, PointerAttribute attribute, Address address) {
  FAKE_LOCK();
  const auto after = state.owner.upper_bound(address);
  if (attribute != kPointerContext || !Holds(address, 0) || after == state.owner.begin()) return kInvalidValue;
  return *static_cast<Context*>(value) = std::prev(after)->second, kSuccess;
}
FAKE cuMemsetD8Async(Address address, unsigned char value, size_t bytes, Stream) {
  FAKE_ENTER();
  if (!Holds(address, bytes)) return kInvalidValue;
  std::memset(reinterpret_cast<void*>(address), value, bytes);
  return kSuccess;
}
FAKE cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, Stream) {
  FAKE_ENTER();
  if (!Holds(to, bytes)) return kInvalidValue;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return kSuccess;
}
FAKE cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, Stream) {
  FAKE_ENTER();
  if (!Holds(from, bytes)) return kInvalidValue;
  std::memcpy(to, reinterpret_cast<void*>(from), bytes);
  return kSuccess;
}
FAKE cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Stream) {
  FAKE_ENTER();
  if (!Holds(to, bytes) || !Holds(from, bytes)) return kInvalidValue;
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
  return kSuccess;
}

FAKE cuLaunchKernel(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                    unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream, void** parameters,
                    void** extra) {
  FAKE_ENTER();
  if (shared_bytes > std::max(49152U, state.dynamic_shared[function])) return kInvalidValue;
  const Call call{grid_x * grid_y * grid_z * block_x * block_y * block_z, parameters};
  if (extra != nullptr || block_x * block_y * block_z > 1024) return kInvalidValue;
  for (int i = 0; i < 2; ++i)
    if (reinterpret_cast<uintptr_t>(call.Pointer(i)) % 16 != 0) return kIllegalAddress;
  const Known& known = *reinterpret_cast<const Known*>(function);
  known.run(call);
  state.clock_ms += 0.5F + known.block_ms * static_cast<float>(grid_x * grid_y * grid_z);
  return kSuccess;
}

FAKE cuStreamCreate(Stream* stream, unsigned flags) {
  FAKE_ENTER();
  if (flags != kStreamNonBlocking) return kInvalidValue;
  return ++state.streams, *stream = reinterpret_cast<Stream>(new FakeStream{current.back()}), kSuccess;
}
FAKE cuStreamDestroy_v2(Stream stream) {
  FAKE_LOCK();
  delete reinterpret_cast<FakeStream*>(stream);
  return --state.streams, kSuccess;
}
FAKE cuStreamGetCtx(Stream stream, Context* context) {
  FAKE_ENTER();
  return *context = stream == nullptr ? current.back() : reinterpret_cast<FakeStream*>(stream)->context, kSuccess;
}
FAKE cuStreamIsCapturing(Stream, CaptureStatus* status) { return *status = kCapturesNothing, kSuccess; }
FAKE cuStreamWaitEvent(Stream, Event, unsigned flags) {
  FAKE_ENTER();
  return flags == 0 ? kSuccess : kInvalidValue;
}
FAKE cuEventQuery(Event) {
  FAKE_ENTER();
  return state.holds ? kNotReady : kSuccess;
}
FAKE cuEventSynchronize(Event) {
  FAKE_ENTER();
  return kSuccess;
}
FAKE cuStreamSynchronize(Stream) {
  FAKE_ENTER();
  return kSuccess;
}
FAKE cuEventCreate(Event* event, unsigned) {
  FAKE_ENTER();
  return ++state.events, *event = reinterpret_cast<Event>(new float(0)), kSuccess;
}
FAKE cuEventDestroy_v2(Event event) {
  FAKE_LOCK();
  delete reinterpret_cast<float*>(event);
  return --state.events, kSuccess;
}
FAKE cuEventRecord(Event event, Stream) {
  FAKE_ENTER();
  return *reinterpret_cast<float*>(event) = state.clock_ms, kSuccess;
}
FAKE cuEventElapsedTime(float* milliseconds, Event from, Event to) {
  FAKE_ENTER();
  return *milliseconds = *reinterpret_cast<float*>(to) - *reinterpret_cast<float*>(from), kSuccess;
}

}  // extern "C"
