#include "network/run/constant_store.h"

#include <gtest/gtest.h>

namespace hone::constant_store_test {
namespace {

std::shared_ptr<const HostTensor> Floats(size_t count, float value) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  return std::make_shared<const HostTensor>(HostTensor{DType::kF32, {static_cast<int64_t>(count)}, std::move(bytes)});
}

Node Reshaped(ValueId input, std::vector<int64_t> extents) {
  Node node;
  node.kind = NodeKind::kReshape;
  node.inputs = {input};
  node.extents = std::move(extents);
  return node;
}

// The key of what a node computes from a constant of a file.
ConstantStore::Key KeyOf(ConstantStore& store, std::shared_ptr<const HostTensor> tensor, Node node) {
  Graph graph;
  const ValueId constant = graph.AddConstant("w", std::move(tensor));
  node.inputs.assign(node.inputs.size(), constant);
  const ValueId computed = *graph.Add(std::move(node));
  return store.KeysOf(graph)[computed];
}

TEST(ConstantStore, KnowsWhatIsComputedAlike) {
  ConstantStore store;
  auto large = Floats(10'000, 1);
  const ConstantStore::Key key = KeyOf(store, large, Reshaped(ValueId(0), {100, 100}));
  ASSERT_TRUE(key);
  EXPECT_EQ(KeyOf(store, large, Reshaped(ValueId(0), {100, 100})), key);
  EXPECT_NE(KeyOf(store, large, Reshaped(ValueId(0), {50, 200})), key);
  EXPECT_NE(KeyOf(store, Floats(10'000, 1), Reshaped(ValueId(0), {100, 100})), key);
  Node function;
  function.kind = NodeKind::kUnary;
  function.function = "exp";
  function.inputs = {ValueId(0)};
  const ConstantStore::Key exponential = KeyOf(store, large, function);
  function.function = "tanh";
  EXPECT_NE(KeyOf(store, large, function), exponential);
}

TEST(ConstantStore, KnowsSmallTensorsByTheirElements) {
  ConstantStore store;
  const ConstantStore::Key key = KeyOf(store, Floats(6, 1), Reshaped(ValueId(0), {2, 3}));
  EXPECT_EQ(KeyOf(store, Floats(6, 1), Reshaped(ValueId(0), {2, 3})), key);
  EXPECT_NE(KeyOf(store, Floats(6, 2), Reshaped(ValueId(0), {2, 3})), key);
}

// Memory that was given back may come again under the same address.
TEST(ConstantStore, DoesNotTakeATensorForOneThatIsGone) {
  ConstantStore store;
  std::optional<Digest128> last;
  for (int i = 0; i < 50; ++i) {
    const ConstantStore::Key key =
        KeyOf(store, Floats(10'000, static_cast<float>(i)), Reshaped(ValueId(0), {100, 100}));
    EXPECT_NE(key, last);
    last = key;
  }
}

TEST(ConstantStore, HasNoKeyForWhatIsNotConstant) {
  ConstantStore store;
  Graph graph;
  const ValueId input = graph.AddInput("x", {DType::kF32, {6}});
  const ValueId computed = *graph.Add(Reshaped(input, {2, 3}));
  EXPECT_FALSE(store.KeysOf(graph)[input]);
  EXPECT_FALSE(store.KeysOf(graph)[computed]);
}

TEST(ConstantStore, KeepsElementsAsLongAsSomebodyHasThem) {
  ConstantStore store;
  const Digest128 key = Hash128("key");
  int made = 0;
  auto make = [&]() -> Result<ConstantStore::Elements> {
    return ConstantStore::Elements(std::make_shared<int>(++made));
  };
  ConstantStore::Elements held = *store.Take(key, 4, make);
  EXPECT_EQ(*store.Take(key, 4, make), held);
  EXPECT_EQ(store.bytes(), 4);
  EXPECT_NE(*store.Take(std::nullopt, 4, make), held);
  held = nullptr;
  EXPECT_EQ(store.bytes(), 0);
  (void)*store.Take(key, 4, make);
  EXPECT_EQ(made, 3);
}

}  // namespace
}  // namespace hone::constant_store_test
