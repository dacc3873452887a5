// Kernels of devices on queues that somebody else has: versions, scratch and constants, on a device that does what the
// test says. y[i] = x[i] + w[i] of 16 elements, by way of scratch; w is packed.
#include "client/device/device_handle.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ir/target.h"

namespace hone {
namespace {

using ::testing::HasSubstr;

constexpr size_t kElements = 16;
constexpr uint64_t kForeign = 64;  // a handle of another context's buffer; a queue likewise
using Elements = std::array<float, kElements>;

// What tests look at, and decide.
struct Script {
  struct Enqueued {
    void* queue = nullptr;
    const void* scratch = nullptr;
    const void* after = nullptr;  // whose scratch
    bool has_ended = false;
  };
  std::vector<std::shared_ptr<Enqueued>> enqueued;
  std::vector<std::string> loaded;  // of versions that are there, by source
  int packed = 0;
  int warmed = 0;  // calls on zeros by the context's own queue
  bool can_order = true;
  bool can_place = true, can_pack = true;

  void EndAll() {
    for (const auto& work : enqueued) work->has_ended = true;
  }
};

struct ScriptedWork : EnqueuedWork {
  explicit ScriptedWork(std::shared_ptr<Script::Enqueued> of) : enqueued(std::move(of)) {}
  bool HasEnded() override { return enqueued->has_ended; }
  void Wait() override { enqueued->has_ended = true; }
  std::shared_ptr<Script::Enqueued> enqueued;
};

struct ScriptedMemory : DeviceMemory {
  Elements elements{};
};

// Buffers: x, w, y, and scratch for w packed, for the call.
class ScriptedKernel : public BorrowedKernel {
 public:
  ScriptedKernel(Script& script, std::string source, std::shared_ptr<Elements> packed)
      : script_(script), source_(std::move(source)), packed_(std::move(packed)) {
    script_.loaded.push_back(source_);
  }
  ~ScriptedKernel() override { script_.loaded.erase(std::ranges::find(script_.loaded, source_)); }

  Result<std::unique_ptr<BorrowedKernel>> Another() override {
    return std::unique_ptr<BorrowedKernel>(std::make_unique<ScriptedKernel>(script_, source_, packed_));
  }
  Result<void> PlaceBorrowed(size_t buffer, const BorrowedBuffer& memory) override {
    if (!script_.can_place) return Error{ErrorKind::kRunFailed, "the driver does not take it", ""};
    operands_[buffer] = reinterpret_cast<Elements*>(memory.handle);
    return {};
  }
  Result<std::unique_ptr<EnqueuedWork>> EnqueueOn(const BorrowedQueue& queue, EnqueuedWork* after) override {
    auto enqueued = std::make_shared<Script::Enqueued>();
    enqueued->queue = queue.queue;
    enqueued->scratch = &scratch_;
    if (after != nullptr) enqueued->after = static_cast<ScriptedWork*>(after)->enqueued->scratch;
    script_.enqueued.push_back(enqueued);
    Add();
    return std::unique_ptr<EnqueuedWork>(std::make_unique<ScriptedWork>(std::move(enqueued)));
  }
  Result<void> Place(size_t buffer, const DeviceMemory& memory, size_t) override {
    operands_[buffer] = &const_cast<ScriptedMemory&>(static_cast<const ScriptedMemory&>(memory)).elements;
    return {};
  }
  Result<void> Enqueue() override {
    script_.warmed += std::ranges::all_of(*operands_[0], [](float x) { return x == 0; });
    return Add(), Result<void>();
  }
  Result<void> Write(size_t, std::span<const std::byte>) override { return {}; }
  Result<void> Read(size_t, std::span<std::byte>) override { return {}; }
  Result<int64_t> Pack() override {
    if (!script_.can_pack) return Error{ErrorKind::kRunFailed, "the driver does not pack", ""};
    ++script_.packed;
    for (size_t i = 0; i < kElements; ++i) (*packed_)[i] = (*operands_[1])[i];
    return 0;
  }
  Result<int64_t> Call(int) override { return 0; }
  Result<std::optional<size_t>> FindOverrun() override { return std::optional<size_t>(); }

 private:
  void Add() {
    for (size_t i = 0; i < kElements; ++i) (*operands_[2])[i] = (*operands_[0])[i] + (*packed_)[i];
  }

  Script& script_;
  const std::string source_;
  const std::shared_ptr<Elements> packed_;
  std::array<Elements*, 3> operands_{};
  Elements scratch_{};
};

DeviceTarget ScriptedTarget() { return {std::string(kOpenClKind), {{"device", "scripted"}}}; }

class ScriptedContext : public BorrowedContext {
 public:
  explicit ScriptedContext(Script& script) : BorrowedContext(ScriptedTarget()), script_(script) {}
  Result<std::unique_ptr<LoadedKernel>> Load(const DeviceArtifact&, Operands) override {
    return Error{ErrorKind::kInternal, "nobody asks for this", ""};
  }
  Result<std::unique_ptr<BorrowedKernel>> LoadBorrowed(const DeviceArtifact& artifact) override {
    return std::unique_ptr<BorrowedKernel>(
        std::make_unique<ScriptedKernel>(script_, artifact.sources[0], std::make_shared<Elements>()));
  }
  Result<MemoryRange> Find(const BorrowedBuffer& buffer, uint64_t bytes, bool, uint64_t) const override {
    if (buffer.handle == kForeign) return Error{ErrorKind::kInvalid, "the buffer is another context's", ""};
    if (buffer.bytes < bytes) return Error{ErrorKind::kInvalid, "the buffer is too small", ""};
    return MemoryRange{0, buffer.handle, buffer.bytes};
  }
  Result<void> Check(const BorrowedQueue& queue) const override {
    if (reinterpret_cast<uint64_t>(queue.queue) == kForeign)
      return Error{ErrorKind::kInvalid, "the queue is another context's", "queue"};
    return {};
  }
  bool CanOrder() const override { return script_.can_order; }
  Result<std::unique_ptr<DeviceMemory>> Allocate(size_t) override {
    return std::unique_ptr<DeviceMemory>(std::make_unique<ScriptedMemory>());
  }
  Result<void> Write(const DeviceMemory& to, size_t, std::span<const std::byte> data) override {
    auto& elements = const_cast<ScriptedMemory&>(static_cast<const ScriptedMemory&>(to)).elements;
    std::ranges::copy(data, std::as_writable_bytes(std::span(elements)).begin());
    return {};
  }
  Result<void> Read(const DeviceMemory& from, size_t, std::span<std::byte> data) override {
    std::ranges::copy(std::as_bytes(std::span(static_cast<const ScriptedMemory&>(from).elements)), data.begin());
    return {};
  }
  Result<void> Copy(const DeviceMemory&, size_t, const DeviceMemory&, size_t, size_t) override { return {}; }
  Result<void> Finish() override { return {}; }

 private:
  Script& script_;
};

DeviceArtifact ScriptedArtifact(const std::string& source) {
  DeviceArtifact artifact;
  artifact.manifest.kernel = "add";
  artifact.manifest.target = PrintTarget(ScriptedTarget());
  for (const char* name : {"x", "w", "y"}) {
    ManifestOperand operand;
    operand.name = name;
    operand.shape = {{kElements, kElements, -1}};
    artifact.manifest.operands.push_back(operand);
  }
  artifact.manifest.operands[1].is_const = true;
  artifact.manifest.operands[2].is_output = true;
  artifact.sources = {source};
  artifact.buffers = {{64, 0, false}, {64, 1, false}, {64, 2, true}, {64, -1, true}, {64, -1, true}};
  DeviceLaunch pack, call;
  pack.packs = true;
  pack.buffers = {1, 3};
  call.buffers = {0, 3, 4, 2};
  artifact.launches = {pack, call};
  return artifact;
}

class DeviceHandleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    device_->context = std::make_unique<ScriptedContext>(script_);
    handle_ = DeviceHandle::Create(device_, Code("first"), {}).value();
    for (size_t i = 0; i < kElements; ++i) x_[i] = static_cast<float>(i), w_[i] = static_cast<float>(100 * i);
  }

  static std::unique_ptr<DeviceCode> Code(const std::string& source) {
    return std::make_unique<DeviceCode>(ScriptedArtifact(source));
  }
  static BorrowedBuffer On(Elements& elements) { return {reinterpret_cast<uint64_t>(elements.data()), 64}; }
  static void* Queue(uint64_t number) { return reinterpret_cast<void*>(number); }

  Result<void> Bind() { return handle_->Bind(1, On(w_)); }
  Result<void> EnqueueOn(uint64_t queue) {
    const std::array<BorrowedBuffer, 3> buffers{On(x_), {}, On(y_)};
    y_.fill(-1);
    return handle_->Enqueue(buffers.data(), {.queue = Queue(queue)});
  }
  bool IsRight() const {
    for (size_t i = 0; i < kElements; ++i)
      if (y_[i] != static_cast<float>(101 * i)) return false;
    return true;
  }
  void Replace(const std::string& source) {
    Result<std::unique_ptr<Updatable::Version>> version = handle_->PrepareCode(Code(source), {});
    ASSERT_TRUE(version) << version.error().Text();
    handle_->PublishVersion(*std::move(version));
  }
  std::string Refusal(std::array<BorrowedBuffer, 3> buffers, uint64_t queue = 1) {
    const Result<void> enqueued = handle_->Enqueue(buffers.data(), {.queue = Queue(queue)});
    return enqueued ? "" : enqueued.error().Text();
  }

  Script script_;
  const std::shared_ptr<SharedDevice> device_ = std::make_shared<SharedDevice>();
  std::unique_ptr<DeviceHandle> handle_;
  Elements x_{}, w_{}, y_{};
};

TEST_F(DeviceHandleTest, CallsOnBuffersOfTheCallers) {
  ASSERT_TRUE(Bind());
  ASSERT_TRUE(EnqueueOn(1));
  EXPECT_TRUE(IsRight());
  y_.fill(-1);
  const std::array<void*, 3> host{x_.data(), nullptr, y_.data()};
  ASSERT_TRUE(handle_->Call(host.data()));
  EXPECT_TRUE(IsRight());
  EXPECT_EQ(handle_->calls(), 2u);
}

TEST_F(DeviceHandleTest, AReplacedVersionStaysUntilItsWorkHasEnded) {
  ASSERT_TRUE(Bind());
  ASSERT_TRUE(EnqueueOn(1));
  Replace("second");
  EXPECT_EQ(script_.packed, 2 * 2);  // for each version: as it is warmed, and what is bound
  ASSERT_TRUE(EnqueueOn(1));
  EXPECT_TRUE(IsRight());
  EXPECT_FALSE(handle_->Reclaim());
  EXPECT_THAT(script_.loaded, ::testing::ElementsAre("first", "second"));
  script_.enqueued[0]->has_ended = true;
  EXPECT_TRUE(handle_->Reclaim());
  EXPECT_THAT(script_.loaded, ::testing::ElementsAre("second"));
}

TEST_F(DeviceHandleTest, AVersionRunsBeforeTheApplicationCallsIt) {
  EXPECT_EQ(script_.warmed, 1);
  Replace("second");
  EXPECT_EQ(script_.warmed, 2);
  EXPECT_TRUE(script_.enqueued.empty());  // on queues of the application
  script_.can_pack = false;
  EXPECT_THAT(handle_->PrepareCode(Code("third"), {}).error().Text(), HasSubstr("the driver does not pack"));
  EXPECT_THAT(script_.loaded, ::testing::ElementsAre("second"));
}

TEST_F(DeviceHandleTest, WorkThatNeverEndsKeepsTwoVersionsAndNoMore) {
  ASSERT_TRUE(Bind());
  for (const char* source : {"second", "third"}) {
    ASSERT_TRUE(EnqueueOn(1));
    ASSERT_TRUE(handle_->HasRoom());
    Replace(source);
  }
  EXPECT_FALSE(handle_->HasRoom());
  script_.EndAll();
  EXPECT_TRUE(handle_->Reclaim());
  EXPECT_TRUE(handle_->HasRoom());
}

TEST_F(DeviceHandleTest, CallsUnderWayAtTheSameTimeHaveScratchOfTheirOwn) {
  ASSERT_TRUE(Bind());
  ASSERT_TRUE(EnqueueOn(1));
  ASSERT_TRUE(EnqueueOn(2));
  EXPECT_NE(script_.enqueued[0]->scratch, script_.enqueued[1]->scratch);
  // What is in one queue waits for what is there.
  ASSERT_TRUE(EnqueueOn(1));
  EXPECT_EQ(script_.enqueued[2]->scratch, script_.enqueued[0]->scratch);
  EXPECT_EQ(script_.enqueued[2]->after, script_.enqueued[0]->scratch);
  // Many queues share a few: they wait for each other.
  std::set<const void*> all;
  for (uint64_t queue = 3; queue < 20; ++queue) {
    ASSERT_TRUE(EnqueueOn(queue));
    all.insert(script_.enqueued.back()->scratch);
  }
  EXPECT_LE(all.size(), 4u);
  EXPECT_NE(script_.enqueued.back()->after, nullptr);
  EXPECT_TRUE(IsRight());
}

TEST_F(DeviceHandleTest, WhatCannotWaitIsNeverGivenScratchThatIsInUse) {
  script_.can_order = false;
  ASSERT_TRUE(Bind());
  std::set<const void*> all;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(EnqueueOn(1));
    all.insert(script_.enqueued.back()->scratch);
  }
  EXPECT_EQ(all.size(), 10u);
  script_.enqueued[4]->has_ended = true;
  ASSERT_TRUE(EnqueueOn(1));
  EXPECT_EQ(script_.enqueued.back()->scratch, script_.enqueued[4]->scratch);
}

TEST_F(DeviceHandleTest, SaysWhatIsWrongAndEnqueuesNothing) {
  EXPECT_THAT(Refusal({On(x_), {}, On(y_)}), HasSubstr("operand 1 (w): the code packs it: bind it before"));
  ASSERT_TRUE(Bind());
  EXPECT_THAT(Refusal({BorrowedBuffer{}, {}, On(y_)}), HasSubstr("operand 0 (x): no buffer"));
  EXPECT_THAT(Refusal({On(x_), {}, BorrowedBuffer{kForeign, 64}}),
              HasSubstr("operand 2 (y): the buffer is another context's"));
  EXPECT_THAT(Refusal({BorrowedBuffer{On(x_).handle, 60}, {}, On(y_)}),
              HasSubstr("operand 0 (x): the buffer is too small"));
  EXPECT_THAT(Refusal({On(x_), {}, On(x_)}), HasSubstr("operand 2 (y): it overlaps x"));
  EXPECT_THAT(Refusal({On(x_), {}, On(w_)}), HasSubstr("operand 2 (y): it overlaps w"));  // which is bound
  EXPECT_THAT(Refusal({On(x_), {}, On(y_)}, kForeign), HasSubstr("queue: the queue is another context's"));
  EXPECT_THAT(handle_->Bind(2, On(y_)).error().Text(), HasSubstr("it is an output"));
  EXPECT_THAT(handle_->Bind(0, On(x_)).error().Text(), HasSubstr("it is not constant"));
  EXPECT_THAT(handle_->Bind(3, On(x_)).error().Text(), HasSubstr("there is no such operand; the kernel has 3"));
  EXPECT_THAT(handle_->Call(nullptr).error().Text(), HasSubstr("operand 0 (x): no memory"));
  EXPECT_TRUE(script_.enqueued.empty());
}

TEST_F(DeviceHandleTest, ABindThatFailedHasBoundNothing) {
  for (bool* step : {&script_.can_place, &script_.can_pack}) {
    *step = false;
    EXPECT_THAT(Bind().error().Text(), HasSubstr("operand 1 (w): the driver does not"));
    *step = true;
    EXPECT_THAT(Refusal({On(x_), {}, On(y_)}), HasSubstr("operand 1 (w): the code packs it: bind it before"));
  }
  ASSERT_TRUE(Bind());
  ASSERT_TRUE(EnqueueOn(1));
  EXPECT_TRUE(IsRight());
  // The old packed copy is as gone as the new one is.
  script_.can_pack = false;
  EXPECT_FALSE(Bind());
  EXPECT_THAT(Refusal({On(x_), {}, On(y_)}), HasSubstr("operand 1 (w): the code packs it: bind it before"));
  script_.can_pack = true;
  Replace("second");  // which is not bound either
  EXPECT_THAT(Refusal({On(x_), {}, On(y_)}), HasSubstr("operand 1 (w): the code packs it: bind it before"));
}

TEST_F(DeviceHandleTest, CodeForAnotherDeviceOrAnotherKernelIsNotTaken) {
  std::unique_ptr<DeviceCode> other = Code("other");
  other->artifact.manifest.target = "opencl device=other";
  EXPECT_THAT(handle_->PrepareCode(std::move(other), {}).error().Text(), HasSubstr("the code is for another device"));
  other = Code("other");
  other->artifact.manifest.operands[0].shape = {{8, 8, -1}};
  EXPECT_EQ(handle_->PrepareCode(std::move(other), {}).error().kind, ErrorKind::kUnsupported);
  EXPECT_THAT(script_.loaded, ::testing::ElementsAre("first"));
}

TEST_F(DeviceHandleTest, AReleasedHandleHasWaitedForItsWork) {
  ASSERT_TRUE(Bind());
  ASSERT_TRUE(EnqueueOn(1));
  handle_.reset();
  EXPECT_TRUE(script_.enqueued[0]->has_ended);
  EXPECT_TRUE(script_.loaded.empty());
}

}  // namespace
}  // namespace hone
