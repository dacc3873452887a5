// How a request becomes code. Two halves: LookUp takes microseconds and ends most requests; Compile takes tens of
// milliseconds and runs at most once at a time for each kernel. What comes before them, answering from memory, is
// daemon/serve/hot_set.h; who runs them, and for whom, is daemon/serve/misses.h.
#pragma once

#include <string>

#include "daemon/serve/lookup_path.h"
#include "daemon/serve/transfers.h"

namespace hone {

// Thread-safe.
class RequestPath : public LookupPath {
 public:
  using LookupPath::LookupPath;

  // Where schedules for kernels that nobody has tuned come from; without it they get their defaults. Before anything is
  // asked.
  void SetTransfers(Transfers* transfers) { transfers_ = transfers; }

  Result<Compiled> Compile(const LookUpResult& found, const CompileRequest& options) override;

 private:
  // What was found of it: checked, or compiled, or else as a kernel that nobody knows.
  Result<Compiled> CompileFound(const LookUpResult& found, const CompileRequest& options);
  // After the first run here of what a bundle brought: what was served before, if that is faster.
  Result<Compiled> FasterOf(const LookUpResult& found, const CompileRequest& options, Compiled compiled);
  // As a neighbour's schedule or the default is the best guess; the provenance is kept.
  // The newest record of this kernel for the same device under another driver, without what was measured there. What is
  // fast depends on the device; its code is the driver's.
  std::optional<Record> RecordOfAnotherDriver(const ResolvedKernel& identity);
  Result<Compiled> CompileTransferred(const LookUpResult& found, const CompileRequest& options);
  enum class Storing : uint8_t { kRecord, kNot };
  Result<Compiled> CompileWith(const LookUpResult& found, const std::string& schedule, const CompileRequest& options,
                               Storing storing = Storing::kRecord);
  double ConfidenceIn(const Record& record) const override;

  Transfers* transfers_ = nullptr;
};

}  // namespace hone
