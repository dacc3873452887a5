#include "network/onnx/large_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "base/aligned_bytes.h"
#include "base/arithmetic.h"
#include "base/parallel.h"
#include "network/onnx/wire_format.h"

namespace hone {
namespace {

constexpr size_t kLarge = 1024;              // bytes; what is smaller is protobuf's
constexpr size_t kPiece = size_t{16} << 20;  // of memory that several tensors share: all go before it does
constexpr size_t kTensorAlignment = 64;      // of each in it
constexpr size_t kStays = size_t{64} << 10;  // bytes from which on a tensor may stay in its file
constexpr size_t kCopiedAtOnce = 1u << 20;   // by a thread
constexpr unsigned kMostCopiers = 4;         // memory sets the pace
constexpr uint64_t kGraph = 7, kInitializer = 5, kRawData = 9;  // fields of ModelProto, GraphProto and TensorProto

void AppendBytesField(std::string_view tag, std::string_view body, std::string& to) {
  to += tag;
  uint64_t size = body.size();
  for (; size >= 0x80; size >>= 7) to += static_cast<char>((size & 0x7f) | 0x80);
  to += static_cast<char>(size);
  to += body;
}

// `rest` gets the tensor without its elements, which are returned; empty where they stay. nullopt: as CutLargeTensors.
std::optional<std::string_view> CutTensor(std::string_view tensor, std::string& rest) {
  std::string_view elements;
  int count = 0;
  for (std::string_view left = tensor; !left.empty();) {
    const std::optional<WireField> field = TakeField(left);
    if (!field) return std::nullopt;
    if (field->number == kRawData) {
      ++count;
      if (field->is_bytes) elements = field->body;
      continue;
    }
    rest += field->whole;
  }
  if (count == 1 && elements.size() >= kLarge) return elements;
  rest = tensor;
  return std::string_view();
}

// Likewise of a graph.
bool CutGraph(std::string_view graph, CutModel& cut, std::string& rest) {
  int position = 0;
  while (!graph.empty()) {
    const std::optional<WireField> field = TakeField(graph);
    if (!field) return false;
    if (field->number != kInitializer || !field->is_bytes) {
      rest += field->whole;
      continue;
    }
    std::string tensor;
    const std::optional<std::string_view> elements = CutTensor(field->body, tensor);
    if (!elements) return false;
    AppendBytesField(field->tag, tensor, rest);
    if (!elements->empty()) cut.elements[position] = *elements;
    ++position;
  }
  return true;
}

}  // namespace

std::optional<CutModel> CutLargeTensors(std::string_view model) {
  CutModel cut;
  bool has_graph = false;
  while (!model.empty()) {
    const std::optional<WireField> field = TakeField(model);
    if (!field) return std::nullopt;
    if (field->number != kGraph || !field->is_bytes) {
      cut.rest += field->whole;
      continue;
    }
    if (std::exchange(has_graph, true)) return std::nullopt;  // protobuf would make one of the two
    std::string graph;
    if (!CutGraph(field->body, cut, graph)) return std::nullopt;
    AppendBytesField(field->tag, graph, cut.rest);
  }
  if (cut.elements.empty()) return std::nullopt;
  return cut;
}

Result<FreshBytes> MakeBytes(size_t bytes) {
  std::shared_ptr<void> memory = AllocateAligned(static_cast<int64_t>(std::max<size_t>(bytes, 1)));
  if (!memory) return Error{ErrorKind::kLimit, fmt::format("no memory for {} bytes", bytes), ""};
  char* const at = static_cast<char*>(memory.get());
  return FreshBytes{TensorBytes(std::move(memory), {at, bytes}), at};
}

Result<void> TensorCopies::Make() {
  struct Move {
    char* to;
    std::string_view from;
  };
  std::vector<Move> moves;
  for (size_t begin = 0; begin < copies_.size();) {
    // As many as a piece has room for, or one that is larger.
    size_t end = begin, size = 0;
    std::vector<size_t> offsets;
    do {
      offsets.push_back(size);
      size += RoundUp(copies_[end++].from.size(), kTensorAlignment);
    } while (end < copies_.size() && size + copies_[end].from.size() <= kPiece);
    const std::shared_ptr<void> piece = AllocateAligned(static_cast<int64_t>(size));
    if (!piece) return Error{ErrorKind::kLimit, fmt::format("no memory for {} bytes", size), ""};
    for (size_t i = begin; i < end; ++i) {
      const std::string_view from = copies_[i].from;
      char* const to = static_cast<char*>(piece.get()) + offsets[i - begin];
      copies_[i].tensor->data = TensorBytes(piece, {to, from.size()});
      for (size_t at = 0; at < from.size(); at += kCopiedAtOnce)
        moves.push_back({to + at, from.substr(at, kCopiedAtOnce)});
    }
    begin = end;
  }
  copies_.clear();
  const auto threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, kMostCopiers));
  ForEachIndex(moves.size(), threads,
               [&](size_t i) { std::memcpy(moves[i].to, moves[i].from.data(), moves[i].from.size()); });
  return {};
}

Result<void> TensorCopies::MakeSmall(const std::shared_ptr<const void>& memory) {
  TensorCopies small;
  for (Copy& copy : copies_) {
    if (copy.from.size() >= kStays) {
      copy.tensor->data = TensorBytes(memory, copy.from);
    } else {
      small.copies_.push_back(std::move(copy));
    }
  }
  std::erase_if(copies_, [](const Copy& copy) { return copy.tensor == nullptr; });
  return small.Make();
}

void TensorCopies::Forget() {
  for (const Copy& copy : copies_) copy.tensor->data = {};
  copies_.clear();
}

}  // namespace hone
