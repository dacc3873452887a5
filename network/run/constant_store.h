// Constants of a model as kernels read them, shared by its versions: what the same nodes compute from the same tensors
// of the file is computed once and lies in one place, so that kernels of all versions share its packed copies, too.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "base/hash.h"
#include "base/result.h"
#include "network/graph/graph.h"

namespace hone {

// Not thread-safe. Holds no constant itself: one goes with the last version that has it.
class ConstantStore {
 public:
  using Elements = std::shared_ptr<const void>;
  // Equal keys of values in graphs of this store's model: equal elements. nullopt: nothing is known to be equal.
  using Key = std::optional<Digest128>;

  // Of every value; nullopt for those that are no constants.
  IdVector<ValueId, Key> KeysOf(const Graph& graph);

  // What a version has under this key, or what `make` makes, whose errors are returned.
  Result<Elements> Take(const Key& key, int64_t bytes, const std::function<Result<Elements>()>& make);

  int64_t bytes() const;  // of all that some version has under a key

 private:
  struct Tensor {
    std::weak_ptr<const HostTensor> tensor;
    uint64_t number = 0;
  };
  struct Kept {
    std::weak_ptr<const void> elements;
    int64_t bytes = 0;
  };

  uint64_t NumberOf(const std::shared_ptr<const HostTensor>& tensor);

  std::map<const HostTensor*, Tensor> tensors_;
  uint64_t next_number_ = 0;
  std::map<Digest128, Kept> kept_;
};

}  // namespace hone
