// Elements of an ONNX file's initialisers, past protobuf: it would copy each into memory of its own, small page by
// small page, which takes most of the time that a large model takes to be read. They are taken out of the message
// before it is parsed, and copied once, by several threads, into large pages; or they stay in the file until somebody
// wants them elsewhere.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "network/graph/host_tensor.h"

namespace hone {

// A ModelProto's bytes (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto) without some of its elements.
struct CutModel {
  std::string rest;                          // still a ModelProto
  std::map<int, std::string_view> elements;  // what raw_data had, by the initialiser's position in the graph
};

// Views are into `model`. nullopt: there is nothing to take out, or fields stand where writers do not put them, or
// twice: then it is protobuf's to read or to refuse.
std::optional<CutModel> CutLargeTensors(std::string_view model);

// Copies of elements that are made together.
class TensorCopies {
 public:
  // `tensor` gets `elements` when Make is called; they have to be there until then.
  void Add(std::shared_ptr<HostTensor> tensor, std::string_view elements) {
    copies_.push_back({std::move(tensor), elements});
  }
  // kLimit: there is no memory.
  Result<void> Make();
  // Only of small tensors. Large ones are read where their elements are, which `memory` keeps, until Make or Forget is
  // called; who keeps elements of them needs copies of his own.
  Result<void> MakeSmall(const std::shared_ptr<const void>& memory);
  // Tensors whose copies were not made lose their elements.
  void Forget();

 private:
  struct Copy {
    std::shared_ptr<HostTensor> tensor;
    std::string_view from;
  };
  std::vector<Copy> copies_;
};

// New memory, which whoever asked for it fills at `at` before anybody reads it. kLimit: there is none.
struct FreshBytes {
  TensorBytes bytes;
  char* at = nullptr;
};
Result<FreshBytes> MakeBytes(size_t bytes);

}  // namespace hone
