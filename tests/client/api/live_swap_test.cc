// Versions of a kernel that replace each other while it is called.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "client/api/kernel_handle.h"
#include "tests/support/versions.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HONE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HONE_SANITIZED 1
#endif
#endif

namespace hone {
namespace {

using testing::kLayouts;
using testing::Layout;
using testing::LoadBytes;
using testing::VersionBytes;
using testing::VersionCode;
using testing::VersionData;
using testing::VersionManifest;

#ifdef HONE_SANITIZED
constexpr bool kSanitized = true;
constexpr int kSwaps = 2'000;
#else
constexpr bool kSanitized = false;
constexpr int kSwaps = 10'000;
#endif

std::unique_ptr<KernelHandle> MakeHandle(const std::vector<std::byte>& bytes,
                                         KernelHandle::Change change = KernelHandle::Change::kLive, int threads = 2) {
  Workers workers;
  workers.pool = std::make_shared<ThreadPool>(ThreadPoolOptions{.threads = threads});
  workers.count = threads;
  return *KernelHandle::Create(*LoadBytes(bytes), {}, workers, change);
}

std::unique_ptr<KernelHandle> MakeHandle(Layout layout, int tag = 0,
                                         KernelHandle::Change change = KernelHandle::Change::kLive, int threads = 2) {
  return MakeHandle(VersionBytes(layout, tag), change, threads);
}

Result<void> Swap(KernelHandle& handle, const std::vector<std::byte>& bytes) {
  std::unique_ptr<KernelVersion> version = HONE_TRY(handle.Prepare(HONE_TRY(LoadBytes(bytes)), {}));
  handle.Publish(std::move(version));
  return {};
}

int CountMappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<int>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

double ResidentMib() {
  long pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

TEST(LiveSwap, ConstantsArePackedAgainForEachVersion) {
  const std::vector<float> w = VersionData::Constant();
  VersionData data(1);
  auto handle = MakeHandle(Layout::kPlain);
  ASSERT_TRUE(handle->Bind(1, w.data()));
  EXPECT_EQ(data.Call(*handle, w), 0);
  int tag = 0;
  for (int from = 0; from < kLayouts; ++from) {
    for (int to = 0; to < kLayouts; ++to) {
      ASSERT_TRUE(Swap(*handle, VersionBytes(static_cast<Layout>(to), ++tag)));
      EXPECT_EQ(data.Call(*handle, w), tag);
      ASSERT_TRUE(Swap(*handle, VersionBytes(static_cast<Layout>(from), ++tag)));
      EXPECT_EQ(data.Call(*handle, w), tag);
    }
  }
  EXPECT_EQ(handle->swaps(), static_cast<uint64_t>(tag));
}

// Elements that are read when they are wanted, as long as that is possible.
struct Readable : ConstantSource {
  Result<std::shared_ptr<const void>> Read() const override {
    ++reads;
    if (is_gone) return Error{ErrorKind::kInvalid, "it was changed", "m.onnx"};
    const auto elements = std::make_shared<const std::vector<float>>(VersionData::Constant());
    kept = elements;
    return std::shared_ptr<const void>(elements, elements->data());
  }
  mutable int reads = 0;
  mutable std::weak_ptr<const std::vector<float>> kept;
  bool is_gone = false;
};

TEST(LiveSwap, AConstantThatIsReadIsReadForEachVersionAndKeptForThoseThatDoNotPackIt) {
  const std::vector<float> w = VersionData::Constant();
  VersionData data(1);
  auto source = std::make_shared<Readable>();
  auto handle = MakeHandle(Layout::kReversed);
  ASSERT_TRUE(handle->Bind(1, source));
  EXPECT_EQ(data.Call(*handle, w), 0);
  EXPECT_TRUE(source->kept.expired());
  ASSERT_TRUE(Swap(*handle, VersionBytes(Layout::kPlain, 1)));
  EXPECT_EQ(data.Call(*handle, w), 1);
  ASSERT_TRUE(Swap(*handle, VersionBytes(Layout::kTwice, 2)));
  EXPECT_EQ(data.Call(*handle, w), 2);
  EXPECT_EQ(source->reads, 3);
}

TEST(LiveSwap, WhereAConstantCannotBeReadAnyMoreTheHeldVersionStays) {
  const std::vector<float> w = VersionData::Constant();
  VersionData data(1);
  auto source = std::make_shared<Readable>();
  auto handle = MakeHandle(Layout::kReversed);
  ASSERT_TRUE(handle->Bind(1, source));
  source->is_gone = true;
  const Result<void> swapped = Swap(*handle, VersionBytes(Layout::kTwice, 1));
  ASSERT_FALSE(swapped);
  EXPECT_EQ(swapped.error().Text(), "m.onnx: it was changed");
  EXPECT_EQ(data.Call(*handle, w), 0);
}

TEST(LiveSwap, MemoryThatIsBoundTakesThePlaceOfWhatWasRead) {
  std::vector<float> w = VersionData::Constant();
  VersionData data(1);
  auto source = std::make_shared<Readable>();
  auto handle = MakeHandle(Layout::kReversed);
  ASSERT_TRUE(handle->Bind(1, source));
  for (float& each : w) each += 1;
  ASSERT_TRUE(handle->Bind(1, w.data()));
  source->is_gone = true;
  ASSERT_TRUE(Swap(*handle, VersionBytes(Layout::kTwice, 1)));
  EXPECT_EQ(data.Call(*handle, w), 1);
}

TEST(LiveSwap, CallsAreCountedAndLooksAreNot) {
  const std::vector<float> w = VersionData::Constant();
  VersionData data(1);
  auto handle = MakeHandle(Layout::kPlain);
  ASSERT_TRUE(handle->Bind(1, w.data()));
  EXPECT_EQ(data.Call(*handle, w), 0);
  (void)handle->facts();
  EXPECT_EQ(handle->calls(), 1u);
  std::thread looker([&] {
    for (int i = 0; i < 10'000; ++i) (void)handle->facts();
  });
  for (int i = 0; i < 10'000; ++i) EXPECT_EQ(handle->calls(), 1u);
  looker.join();
}

TEST(LiveSwap, PackingUsesTheSwappingThreadAlone) {
  const std::vector<float> w = VersionData::Constant();
  static std::atomic<int> loops{0};
  loops = 0;
  Workers workers;
  workers.parallel_for = [](void*, int64_t n, int64_t, ThreadPool::Body body, void* ctx) {
    ++loops;
    body(0, n, 0, ctx);
    return 0;
  };
  auto handle =
      *KernelHandle::Create(*LoadBytes(VersionBytes(Layout::kReversed, 0)), {}, workers, KernelHandle::Change::kLive);
  ASSERT_TRUE(handle->Bind(1, w.data()));
  EXPECT_EQ(loops, 1);  // the application's own bind is on the application's threads
  ASSERT_TRUE(Swap(*handle, VersionBytes(Layout::kTwice, 1)));
  EXPECT_EQ(loops, 1);
  EXPECT_EQ(VersionData(1).Call(*handle, w), 1);
}

TEST(LiveSwap, AVersionThatIsCalledInAnotherWayIsRefusedAndTheHeldOneStays) {
  const std::vector<float> w = VersionData::Constant();
  VersionData data(1);
  auto handle = MakeHandle(Layout::kReversed);
  ASSERT_TRUE(handle->Bind(1, w.data()));
  const std::vector<std::pair<const char*, std::function<void(Manifest&)>>> changes = {
      {"kernel", [](Manifest& m) { m.kernel = "mul"; }},
      {"number", [](Manifest& m) { m.operands.pop_back(); }},
      {"operand 0", [](Manifest& m) { m.operands[0].shape = {{999, 999, -1}}; }},
      {"operand 0", [](Manifest& m) { m.operands[0].dtype = DType::kI32; }},
      {"operand 0", [](Manifest& m) { m.operands[0].name = "z"; }},
      {"operand 1",
       [](Manifest& m) {
         m.operands[1].is_const = false, m.operands[1].packed_bytes = 0, m.operands[1].packed_layout.clear();
       }},
      {"operand 0", [](Manifest& m) { m.operands[0].shape = {{500, 500, -1}, {2, 2, -1}}; }},
      {"aligned", [](Manifest& m) { m.operands[2].alignment = 64; }},
      {"sizes", [](Manifest& m) { m.dynamic_sizes = {"N"}; }},
  };
  for (const auto& [what, change] : changes) {
    Manifest manifest = VersionManifest(Layout::kReversed, "add");
    change(manifest);
    Result<void> swapped = Swap(*handle, VersionBytes(manifest, VersionCode(Layout::kReversed, 7)));
    ASSERT_FALSE(swapped) << what;
    EXPECT_NE(swapped.error().Text().find(what), std::string::npos) << swapped.error().Text();
    EXPECT_EQ(data.Call(*handle, w), 0);
  }
  EXPECT_EQ(handle->swaps(), 0u);
}

TEST(LiveSwap, AVersionForAnotherNumberOfThreadsIsTaken) {
  const std::vector<float> w = VersionData::Constant();
  VersionData data(1);
  const std::string kernel = "kernel k(t0: f32[4]) -> t1: f32[4]";
  auto bytes = [&](const std::string& said, int tag) {
    return VersionBytes(VersionManifest(Layout::kPlain, kernel + said + " {\n}\n"), VersionCode(Layout::kPlain, tag));
  };
  auto handle = MakeHandle(bytes("\nwith threads=2", 0));
  ASSERT_TRUE(handle->Bind(1, w.data()));
  ASSERT_TRUE(Swap(*handle, bytes("", 1)));
  EXPECT_EQ(data.Call(*handle, w), 1);
  EXPECT_FALSE(Swap(*handle, bytes("\nwith accuracy=fast", 2)));
}

TEST(LiveSwap, AVersionThatCannotPackIsRefused) {
  const std::vector<float> w = VersionData::Constant();
  auto handle = MakeHandle(Layout::kReversed);
  ASSERT_TRUE(handle->Bind(1, w.data()));
  std::string code = VersionCode(Layout::kTwice, 7);
  code.replace(code.find("operand != 1"), 12, "operand == 1");
  EXPECT_EQ(Swap(*handle, VersionBytes(VersionManifest(Layout::kTwice, "add"), code)).error().kind,
            ErrorKind::kRunFailed);
  Manifest huge = VersionManifest(Layout::kReversed, "add");
  huge.operands[1].packed_bytes = int64_t{1} << 40;  // more than there is, or than a version may want
#ifndef HONE_SANITIZED                               // they end the process where memory is refused
  (void)Swap(*handle, VersionBytes(huge, VersionCode(Layout::kPlain, 8)));
#endif
  EXPECT_GE(VersionData(1).Call(*handle, w), 0);
}

TEST(LiveSwap, AConstantThatCallsBringCannotBePackedUntilItIsBound) {
  const std::vector<float> w = VersionData::Constant();
  VersionData data(1);
  auto handle = MakeHandle(Layout::kPlain);
  EXPECT_EQ(data.Call(*handle, w, w.data()), 0);
  EXPECT_EQ(Swap(*handle, VersionBytes(Layout::kTwice, 1)).error().kind, ErrorKind::kUnsupported);
  EXPECT_EQ(data.Call(*handle, w, w.data()), 0);
  ASSERT_TRUE(handle->Bind(1, w.data()));
  ASSERT_TRUE(Swap(*handle, VersionBytes(Layout::kTwice, 1)));
  EXPECT_EQ(data.Call(*handle, w), 1);
}

TEST(LiveSwap, AReplacedVersionLivesUntilItsLastCallReturns) {
  static std::atomic<bool> inside{false}, go_on{false};
  inside = go_on = false;
  Workers workers;
  workers.parallel_for = [](void*, int64_t n, int64_t, ThreadPool::Body body, void* ctx) {
    if (!inside.exchange(true)) {
      while (!go_on) std::this_thread::yield();
    }
    body(0, n, 0, ctx);
    return 0;
  };
  const std::vector<float> w = VersionData::Constant();
  auto handle =
      *KernelHandle::Create(*LoadBytes(VersionBytes(Layout::kPlain, 0)), {}, workers, KernelHandle::Change::kLive);
  ASSERT_TRUE(handle->Bind(1, w.data()));
  int slow = -2;
  std::thread caller([&] { slow = VersionData(1).Call(*handle, w); });
  while (!inside) std::this_thread::yield();
  ASSERT_TRUE(Swap(*handle, VersionBytes(Layout::kReversed, 1)));
  EXPECT_TRUE(handle->HasRetired());
  EXPECT_EQ(VersionData(2).Call(*handle, w), 1);
  ASSERT_TRUE(handle->HasRoom());
  ASSERT_TRUE(Swap(*handle, VersionBytes(Layout::kTwice, 2)));
  EXPECT_FALSE(handle->Reclaim());
  EXPECT_FALSE(handle->HasRoom());  // so that a call that never ends does not pile up versions
  EXPECT_EQ(VersionData(2).Call(*handle, w), 2);
  go_on = true;
  caller.join();
  EXPECT_EQ(slow, 0);  // all of the call ran in the version that it began in
  EXPECT_TRUE(handle->Reclaim());
  EXPECT_TRUE(handle->HasRoom());
}

TEST(LiveSwap, ThousandsOfSwapsUnderEightCallingThreads) {
  const std::vector<float> w = VersionData::Constant();
  std::vector<std::vector<std::byte>> versions;
  for (int layout = 0; layout < kLayouts; ++layout) {
    versions.push_back(VersionBytes(static_cast<Layout>(layout), layout));
    versions.push_back(VersionBytes(static_cast<Layout>(layout), layout + kLayouts));
  }
  auto handle = MakeHandle(Layout::kPlain, 0);
  ASSERT_TRUE(handle->Bind(1, w.data()));
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> calls{0}, wrong{0}, changes{0};
  std::atomic<uint32_t> seen{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&, i] {
      VersionData data(i);
      int last = -1;
      for (uint64_t call = 0; !stop; ++call) {
        int tag = data.Call(*handle, w);
        wrong += tag < 0;
        changes += tag != last;
        seen |= 1u << std::max(tag, 0);
        last = tag;
        ++calls;
        // Without pauses the swapping thread would have a ninth of the processors, and the test ten times as long.
        if (call % 4 == 3) std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    });
  }
  int mappings = 0, most_mappings = 0;
  double memory = 0;
  auto begun = std::chrono::steady_clock::now();
  for (int swap = 0; swap < kSwaps; ++swap) {
    ASSERT_TRUE(Swap(*handle, versions[(swap * 5 + swap / 8) % versions.size()])) << swap;
    while (!handle->HasRoom()) {
      std::this_thread::yield();
      handle->Reclaim();
    }
    if (swap == kSwaps / 10) {
      mappings = CountMappings();
      memory = ResidentMib();
    } else if (swap > kSwaps / 10 && swap % 50 == 0) {
      most_mappings = std::max(most_mappings, CountMappings());
    }
  }
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  double memory_after = ResidentMib();
  stop = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(seen, 0xffu) << "not every version was called";
  EXPECT_GT(changes, static_cast<uint64_t>(kSwaps) / 4) << "calls did not notice the swaps";
  EXPECT_EQ(handle->swaps(), static_cast<uint64_t>(kSwaps));
  EXPECT_EQ(handle->calls(), calls);
  if (!kSanitized) {
    // At most three more versions, of five mappings each, and what malloc maps now and then.
    EXPECT_LE(most_mappings, mappings + 20);
    EXPECT_LT(memory_after, memory + 8) << "MiB";
  }
  printf("%d swaps in %.1f s, %llu calls; mappings %d, at most %d; %.1f MiB, then %.1f\n", kSwaps, seconds,
         static_cast<unsigned long long>(calls.load()), mappings, most_mappings, memory, memory_after);
}

TEST(LiveSwap, AFrozenHandleHasNoGate) {
  const std::vector<float> w = VersionData::Constant();
  auto handle = MakeHandle(Layout::kReversed, 3, KernelHandle::Change::kFrozen);
  ASSERT_TRUE(handle->Bind(1, w.data()));
  EXPECT_FALSE(handle->is_live());
  EXPECT_EQ(VersionData(1).Call(*handle, w), 3);
  EXPECT_EQ(handle->swaps(), 0u);
}

}  // namespace
}  // namespace hone
