// A model whose shapes inputs and computed values decide. Once they are known, the model is a network of known shapes:
// a version, which is made when its shapes are first met, and kept. Where values of the network itself decide shapes,
// or how often a body runs, it is cut there: a version ends with these values, what waits for them is a program of its
// own that is run next, and between the two come operators whose results only then have a size, and loops.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/api/client.h"
#include "network/onnx/import_network.h"
#include "network/onnx/onnx_model.h"
#include "network/run/executor.h"
#include "network/run/work_shares.h"

namespace hone {

class Program;
class ProgramVersion;

// Versions of all programs of a model, the last one that ran first: one that another is within runs longer, and is
// before it.
using ProgramVersions = std::list<ProgramVersion*>;

// What all programs of a model share.
struct ProgramContext {
  std::string path;  // of the model, for messages
  Client* client = nullptr;
  GetOptions get;
  Accuracy accuracy = Accuracy::kStrict;  // Graph::accuracy
  // Nothing is simplified and no kernel asked for: what the file says, by definition. No client is needed.
  bool is_plain = false;
  const std::shared_ptr<ConstantStore> constants = std::make_shared<ConstantStore>();
  // By how many programs a program is within: of those of one depth only one runs at a time, and what it left in memory
  // has been read when the next one does.
  const std::shared_ptr<std::deque<SharedArena>> arenas = std::make_shared<std::deque<SharedArena>>();
  const std::shared_ptr<ProgramVersions> versions = std::make_shared<ProgramVersions>();
  // Where the time goes, as long as somebody wants to know: calls, operators between parts, what is made for new
  // shapes.
  const std::shared_ptr<WorkShares> shares = std::make_shared<WorkShares>();
};

// Not thread-safe.
class Program {
 public:
  // A whole model. Its inputs have element types; what it says of their shapes is checked by whoever runs it.
  Program(OnnxModel model, std::shared_ptr<const ProgramContext> context);
  // The body of a loop within a program of depth `depth`; its inputs are of the types that they come with.
  static std::unique_ptr<Program> ForBody(OnnxModel model, size_t depth, std::shared_ptr<const ProgramContext> context);
  ~Program();

  // Every input, in the model's order, and all outputs, which live until the next run; both must stay until then.
  // `outputs`: room for each, where those are of known shapes that are written there at once if they can be; none:
  // memory of the program's. Errors of BuildNetwork, CheckComplete, Executor::Create and Executor::Run.
  Result<std::vector<TensorView>> Run(const std::vector<TensorView>& inputs, std::span<void* const> outputs = {});

  // Makes the version for these inputs, of which only the types are read, with its kernels, and says which types the
  // outputs have; nullopt for those that values decide which are computed. `file`: as in ExecutorOptions; without a
  // nullopt, and for these inputs alone, the program needs no large tensor any more.
  Result<std::vector<std::optional<TensorType>>> Prepare(const std::vector<TensorView>& inputs,
                                                         std::shared_ptr<ModelFile> file = nullptr);

  const OnnxModel& model() const { return model_; }

 private:
  friend class ProgramVersion;
  Program(OnnxModel model, std::set<std::string> deciding, size_t depth, bool is_whole,
          std::shared_ptr<const ProgramContext> context);
  Result<ProgramVersion*> VersionFor(const std::vector<TensorView>& inputs);
  void ForgetOldVersions();  // of all programs of the model
  void Forget(const ProgramVersion* version);
  void Release();  // the results of the last run

  OnnxModel model_;
  const std::set<std::string> deciding_;  // inputs whose elements a version is for
  const size_t depth_;                    // programs that it is within
  const bool is_whole_;                   // not what is run between others, and may be little
  std::shared_ptr<const ProgramContext> context_;
  std::map<std::string, std::unique_ptr<ProgramVersion>> versions_;
  ProgramVersion* last_ = nullptr;  // that ran
};

}  // namespace hone
