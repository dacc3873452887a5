#include "network/run/lower_served.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/parallel.h"
#include "network/graph/keep_narrow.h"

namespace hone {
namespace {

std::vector<std::string> KernelsOf(const CallPlan& plan) {
  std::set<std::string> distinct;
  for (const KernelCall& call : plan.calls)
    if (!call.is_host()) distinct.insert(call.kernel);
  return {distinct.begin(), distinct.end()};
}

// `mutex` guards what is opened.
Result<void> Serve(Client& client, const std::string& kernel, const ExecutorOptions& options, Mutex& mutex) {
  if (options.opened == nullptr || IsForDevice(options)) {
    HONE_TRY(client.Fetch(kernel, options.get));
    return {};
  }
  OpenedKernel opened = HONE_TRY(client.Open(kernel, options.get));
  MutexLock lock(mutex);
  options.opened->insert_or_assign(kernel, std::move(opened));
  return {};
}

// Over several connections at once.
Refusals FetchAll(Client& client, const CallPlan& plan, const ExecutorOptions& options) {
  const std::vector<std::string> kernels = KernelsOf(plan);
  Mutex mutex;
  Refusals refused;
  ForEachIndex(kernels.size(), options.connections, [&](size_t at) {
    const Result<void> served = Serve(client, kernels[at], options, mutex);
    if (served || !IsRefusal(served.error())) return;
    MutexLock lock(mutex);
    refused.emplace(kernels[at], served.error());
  });
  return refused;
}

// Whether an error says something of this kernel alone, and nothing of what makes kernels.
bool IsOfTheKernel(const Error& error) {
  return error.kind == ErrorKind::kLimit || error.kind == ErrorKind::kWrongResult ||
         error.kind == ErrorKind::kRunFailed;
}

// Of products with weights of whole numbers, such as a device without bytes has none of.
bool RefusesNarrowWeights(const CallPlan& plan, const Refusals& refused) {
  return std::ranges::any_of(plan.calls, [&](const KernelCall& call) {
    const auto error = refused.find(call.kernel);
    return call.is_library && error != refused.end() && error->second.kind == ErrorKind::kUnsupported &&
           call.kernel.find("weights=") != std::string::npos;
  });
}

}  // namespace

bool IsRefusal(const Error& error) {
  // There is no such device; or the daemon, honed-edge or an older honed, does not take such questions.
  for (const char* of_no_kernel : {"target", "honed-edge", "frame"})
    if (error.where == of_no_kernel) return false;
  switch (error.kind) {
    case ErrorKind::kUnsupported:
    case ErrorKind::kLimit:
    case ErrorKind::kBuildFailed:
    case ErrorKind::kRunFailed:
    case ErrorKind::kWrongResult: return true;
    default: return false;
  }
}

Result<CallPlan> LowerServed(Graph& graph, LowerOptions options, const std::function<Refusals(const CallPlan&)>& ask) {
  bool has_widened = false;
  while (true) {
    CallPlan plan = Lower(graph, options);
    const Refusals refused = ask(plan);
    if (refused.empty()) return plan;
    if (RefusesNarrowWeights(plan, refused) && !std::exchange(has_widened, true)) {
      HONE_TRY(WidenWeights(graph));
      continue;
    }
    const bool are_all = options.refused.empty() && refused.size() == KernelsOf(plan).size();
    if (are_all && (refused.size() > 1 || !IsOfTheKernel(refused.begin()->second))) return refused.begin()->second;
    for (const auto& [kernel, error] : refused) options.refused.emplace(kernel, error.Text());
  }
}

Result<CallPlan> LowerServed(Client& client, Graph& graph, const LowerOptions& options,
                             const ExecutorOptions& executor) {
  Result<void> mapped;
  CallPlan served = HONE_TRY(LowerServed(graph, options, [&](const CallPlan& plan) {
    if (executor.file != nullptr) executor.file->Unmap();  // minutes, perhaps
    Refusals refused = FetchAll(client, plan, executor);
    if (executor.file != nullptr) mapped = executor.file->Map();
    return mapped ? refused : Refusals();  // nothing more is read
  }));
  if (!mapped) return std::move(mapped).error();
  return served;
}

}  // namespace hone
