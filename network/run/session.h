// A model file that can be run: imported, its kernels served, its constants packed.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "client/api/client.h"
#include "network/onnx/import_network.h"
#include "network/run/program.h"

namespace hone {

struct SessionOptions {
  std::map<std::string, Shape> shapes;                                 // of inputs, in place of what the file says
  std::map<std::string, std::shared_ptr<const HostTensor>> constants;  // inputs that never change, as of the file
  GetOptions get;
  Accuracy accuracy = Accuracy::kStrict;  // of its kernels of f32: Graph::accuracy
};

// An input or output, in the type that the file declares.
struct SessionValue {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;            // -1: decided by the inputs of a run, or by what it computes
  bool has_shape = true;  // false: not even its rank is known

  bool is_open() const;
};

// Where the file leaves dimensions open and the options do not say them, or values decide them that the network
// computes, each run has shapes of its own: kernels for them are made at first use, and kept. Thread-safe: one run at a
// time, others wait.
class Session {
 public:
  // Errors of ReadOnnx, BuildNetwork and Client::Get; kInvalid: a shape or constant of an input that there is not, or
  // of another type or shape than the file says; kUnsupported: a node that cannot be taken (named, with how many).
  static Result<std::unique_ptr<Session>> Open(const std::string& path, ClientOptions client, SessionOptions options);

  const std::vector<SessionValue>& inputs() const { return inputs_; }
  const std::vector<SessionValue>& outputs() const { return outputs_; }

  // Whether inputs and outputs are of the same shapes in every run.
  bool is_closed() const;

  // Elements of every input, and room for those of every output, in their order, dense and row-major. kInvalid: shapes
  // are open, or an index outside of what it indexes; errors of Executor::Run.
  Result<void> Run(std::span<const void* const> inputs, std::span<void* const> outputs);
  // The same for any shapes that the file allows. kInvalid: other types, or dimensions of one name of different sizes.
  Result<std::vector<HostTensor>> Compute(const std::vector<TensorView>& inputs);

  // Has runs from now on timed call by call, which costs each call some 50 ns, or no more; what was counted is
  // forgotten.
  void CountShares(bool is_on);
  // Where the time of runs went since then: kernels, and what ran on the host, each with the reason; largest first.
  std::vector<WorkShare> Shares();

 private:
  Session() = default;

  std::unique_ptr<Client> client_;
  std::vector<OnnxValue> declared_;  // the inputs
  std::vector<SessionValue> inputs_, outputs_;
  Mutex mutex_;
  std::unique_ptr<Program> program_ HONE_PT_GUARDED_BY(mutex_);
  WorkShares* shares_ HONE_PT_GUARDED_BY(mutex_) = nullptr;  // the program's
};

}  // namespace hone
