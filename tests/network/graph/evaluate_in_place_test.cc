// What is computed on elements where they lie is what Evaluate computes, bit for bit.
#include "network/graph/evaluate_in_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "ir/graph/element.h"

namespace hone::evaluate_in_place_test {
namespace {

using testing::HasSubstr;

constexpr DType kTypes[] = {DType::kBool, DType::kI8,  DType::kU8,  DType::kI16,  DType::kU16, DType::kI32, DType::kU32,
                            DType::kI64,  DType::kU64, DType::kF16, DType::kBF16, DType::kF32, DType::kF64};

int64_t AnyWhole(Rng& rng) {
  constexpr int64_t kEnds[] = {0, 1, -1, 2, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  if (rng.Chance(0.2)) return kEnds[rng.Below(std::size(kEnds))];
  const auto bits = static_cast<int64_t>(rng.Below(UINT64_MAX));
  return rng.Chance(0.5) ? bits : bits % 100;
}

HostTensor AnyTensor(Rng& rng, DType dtype, const Shape& shape) {
  Numbers numbers = MakeNumbers(dtype, shape);
  for (double& each : numbers.real)
    each =
        rng.Chance(0.1) ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(AnyWhole(rng) % 1000000) / 8;
  for (int64_t& each : numbers.whole) each = AnyWhole(rng);
  return ToHost(numbers, dtype);
}

Shape AnyShape(Rng& rng) {
  Shape shape;
  for (uint64_t rank = rng.Below(5); rank > 0; --rank) shape.push_back(1 + static_cast<int64_t>(rng.Below(5)));
  return shape;
}

// One that broadcasts to `shape`.
Shape Narrowed(Rng& rng, Shape shape) {
  for (int64_t& extent : shape)
    if (rng.Chance(0.4)) extent = 1;
  if (!shape.empty() && rng.Chance(0.2)) shape.erase(shape.begin());
  return shape;
}

struct Case {
  Node node;
  std::vector<HostTensor> inputs;
};

Case Elementwise(NodeKind kind, const std::string& function, std::vector<HostTensor> inputs) {
  Case made;
  made.node.kind = kind;
  made.node.function = function;
  made.inputs = std::move(inputs);
  return made;
}

Case AnyCase(Rng& rng) {
  constexpr const char* kOfOne[] = {"neg", "abs", "relu", "floor"};
  constexpr const char* kOfTwo[] = {"add",  "sub", "mul", "div", "pow", "min", "max", "mod",
                                    "fmod", "eq",  "ne",  "lt",  "le",  "gt",  "ge"};
  const DType wide = rng.Chance(0.7) ? DType::kI64 : DType::kU64, any = kTypes[rng.Below(std::size(kTypes))];
  const Shape shape = AnyShape(rng);
  Case made;
  switch (rng.Below(12)) {
    case 0:
      return Elementwise(NodeKind::kUnary, kOfOne[rng.Below(std::size(kOfOne))], {AnyTensor(rng, DType::kI64, shape)});
    case 1:
    case 2:
      return Elementwise(NodeKind::kBinary, kOfTwo[rng.Below(std::size(kOfTwo))],
                         {AnyTensor(rng, wide, Narrowed(rng, shape)), AnyTensor(rng, wide, Narrowed(rng, shape))});
    case 3:
      return Elementwise(NodeKind::kSelect, "",
                         {AnyTensor(rng, DType::kBool, Narrowed(rng, shape)), AnyTensor(rng, any, Narrowed(rng, shape)),
                          AnyTensor(rng, any, Narrowed(rng, shape))});
    case 4: {
      made.node.kind = NodeKind::kCast;
      const bool is_from = rng.Chance(0.5);
      made.node.dtype = is_from ? any : DType::kI64;
      made.inputs = {AnyTensor(rng, is_from ? DType::kI64 : any, shape)};
      return made;
    }
    case 5:
      made.node.kind = NodeKind::kTranspose;
      for (size_t d = 0; d < shape.size(); ++d) made.node.axes.push_back(static_cast<int64_t>(d));
      for (size_t d = shape.size(); d > 1; --d) std::swap(made.node.axes[d - 1], made.node.axes[rng.Below(d)]);
      break;
    case 6:
      made.node.kind = NodeKind::kSlice;
      for (int64_t extent : shape) {
        const auto first = static_cast<int64_t>(rng.Below(static_cast<uint64_t>(extent)));
        const bool is_back = rng.Chance(0.3);
        const int64_t step = (is_back ? -1 : 1) * (1 + static_cast<int64_t>(rng.Below(2)));
        made.node.starts.push_back(first);
        made.node.steps.push_back(step);
        made.node.extents.push_back(is_back ? first / -step + 1 : (extent - 1 - first) / step + 1);
      }
      break;
    case 7: {
      made.node.kind = NodeKind::kExpand;
      made.node.extents = shape;
      made.inputs = {AnyTensor(rng, any, Narrowed(rng, shape))};
      return made;
    }
    case 8: {
      if (shape.empty()) return AnyCase(rng);
      made.node.kind = NodeKind::kConcat;
      made.node.axis = static_cast<int64_t>(rng.Below(shape.size()));
      for (uint64_t pieces = 1 + rng.Below(3); pieces > 0; --pieces) {
        Shape of_piece = shape;
        of_piece[static_cast<size_t>(made.node.axis)] = 1 + static_cast<int64_t>(rng.Below(3));
        made.inputs.push_back(AnyTensor(rng, any, of_piece));
      }
      return made;
    }
    case 10: {
      constexpr const char* kReductions[] = {"sum", "prod", "max", "min"};
      made.node.kind = NodeKind::kReduce;
      made.node.function = kReductions[rng.Below(std::size(kReductions))];
      for (size_t d = 0; d < shape.size(); ++d)
        if (rng.Chance(0.5)) made.node.axes.push_back(static_cast<int64_t>(d));
      made.inputs = {AnyTensor(rng, wide, shape)};
      return made;
    }
    case 9: {
      if (shape.empty()) return AnyCase(rng);
      constexpr const char* kModes[] = {"", "", "edge", "reflect", "wrap"};
      made.node.kind = NodeKind::kPad;
      made.node.function = kModes[rng.Below(std::size(kModes))];
      made.node.fill = rng.Chance(0.5) ? 0 : 3;
      made.node.whole_fill = rng.Chance(0.5) ? 0 : AnyWhole(rng);
      for (int64_t extent : shape) {
        const int64_t least = made.node.function == "reflect" ? 1 - extent : -extent;
        const auto before = static_cast<int64_t>(rng.Below(4)) - 1;
        made.node.starts.push_back(std::clamp<int64_t>(before, least, -least));
        made.node.extents.push_back(
            std::max<int64_t>(1, extent + made.node.starts.back() + static_cast<int64_t>(rng.Below(3)) - 1));
      }
      break;
    }
    default: {
      if (shape.empty()) return AnyCase(rng);
      made.node.kind = NodeKind::kGather;
      made.node.axis = static_cast<int64_t>(rng.Below(shape.size()));
      const int64_t extent = shape[static_cast<size_t>(made.node.axis)];
      Numbers indices =
          MakeNumbers(rng.Chance(0.5) ? DType::kI64 : DType::kI32, {1 + static_cast<int64_t>(rng.Below(4))});
      for (int64_t& index : indices.whole)
        index = static_cast<int64_t>(rng.Below(2 * static_cast<uint64_t>(extent))) - extent;
      made.inputs = {AnyTensor(rng, any, shape), ToHost(indices, indices.dtype)};
      return made;
    }
  }
  made.inputs = {AnyTensor(rng, any, shape)};
  return made;
}

// Elements where they lie, aligned.
struct Memory {
  explicit Memory(const HostTensor& tensor) : type{tensor.dtype, tensor.shape}, words(tensor.data.size() / 8 + 2, 0) {
    std::memcpy(words.data(), tensor.data.data(), tensor.data.size());
  }
  ElementsView view() { return {&type, words.data()}; }
  TensorType type;
  std::vector<uint64_t> words;
};

TEST(EvaluateInPlace, ComputesWhatEvaluateDoes) {
  Rng rng(11);
  std::map<NodeKind, int> seen;
  for (int round = 0; round < 6000; ++round) {
    const Case made = AnyCase(rng);
    std::vector<TensorType> types;
    std::vector<Numbers> numbers;
    std::vector<const Numbers*> arguments;
    std::vector<Memory> memory;
    for (const HostTensor& input : made.inputs) {
      types.push_back({input.dtype, input.shape});
      numbers.push_back(ToNumbers(input));
      memory.emplace_back(input);
    }
    for (const Numbers& each : numbers) arguments.push_back(&each);
    std::vector<ElementsView> views;
    for (Memory& each : memory) views.push_back(each.view());
    const Result<TensorType> type = InferType(made.node, types);
    ASSERT_TRUE(type) << type.error().Text();
    const Result<Numbers> wanted = Evaluate(made.node, arguments, *type);
    ASSERT_TRUE(wanted) << wanted.error().Text();
    const HostTensor expected = ToHost(*wanted, type->dtype);

    Memory result(HostTensor{type->dtype, type->shape, std::string(expected.data.size(), '\x55')});
    const Result<bool> done = EvaluateInPlace(made.node, views, result.view());
    ASSERT_TRUE(done) << done.error().Text();
    if (!*done) continue;
    ++seen[made.node.kind];
    ASSERT_EQ(std::memcmp(result.words.data(), expected.data.data(), expected.data.size()), 0)
        << round << ": " << Name(made.node.kind) << " " << made.node.function << " of " << ShapeText(types[0].shape)
        << " to " << ShapeText(type->shape);
  }
  for (NodeKind kind :
       {NodeKind::kUnary, NodeKind::kBinary, NodeKind::kSelect, NodeKind::kCast, NodeKind::kTranspose, NodeKind::kSlice,
        NodeKind::kExpand, NodeKind::kConcat, NodeKind::kPad, NodeKind::kReduce, NodeKind::kGather})
    EXPECT_GT(seen[kind], 200) << Name(kind);
}

TEST(EvaluateInPlace, AnIndexOutsideIsAnErrorAndWhatIsNotAlignedIsLeft) {
  Memory x(ToHost(WholeNumbers({1, 2, 3}, {3}), DType::kI64)), at(ToHost(WholeNumbers({3}, {1}), DType::kI64));
  Memory out(ToHost(WholeNumbers({0}, {1}), DType::kI64));
  Node gather;
  gather.kind = NodeKind::kGather;
  const std::vector<ElementsView> inputs = {x.view(), at.view()};
  const Result<bool> outside = EvaluateInPlace(gather, inputs, out.view());
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().kind, ErrorKind::kInvalid);
  EXPECT_THAT(outside.error().Text(), HasSubstr("index 3 of 3 elements"));

  at.words[0] = 2;
  EXPECT_TRUE(*EvaluateInPlace(gather, inputs, out.view()));
  EXPECT_EQ(out.words[0], 3u);
  const ElementsView odd = {&out.type, reinterpret_cast<std::byte*>(out.words.data()) + 1};
  EXPECT_FALSE(*EvaluateInPlace(gather, inputs, odd));
}

TEST(EvaluateInPlace, WhatIsReducedFromNoElementsIsLeft) {
  for (const char* function : {"sum", "prod", "max", "min"}) {
    for (const Shape& shape : {Shape{2, 0}, Shape{0, 2}}) {
      const HostTensor none = ToHost(MakeNumbers(DType::kI64, shape), DType::kI64);
      Memory x(none);
      for (int64_t axis : {0, 1}) {
        Node reduce;
        reduce.kind = NodeKind::kReduce;
        reduce.function = function;
        reduce.axes = {axis};
        const Result<TensorType> type = InferType(reduce, std::span(&x.type, 1));
        ASSERT_TRUE(type);
        Memory out(ToHost(MakeNumbers(DType::kI64, type->shape), DType::kI64));
        const std::vector<ElementsView> inputs = {x.view()};
        EXPECT_FALSE(*EvaluateInPlace(reduce, inputs, out.view())) << function << " of " << ShapeText(shape);
      }
    }
  }
}

}  // namespace
}  // namespace hone::evaluate_in_place_test
