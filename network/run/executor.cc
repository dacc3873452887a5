#include "network/run/executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/arithmetic.h"
#include "ir/target.h"
#include "network/run/device_executor.h"
#include "network/run/host_executor.h"

namespace hone {

bool IsForDevice(const ExecutorOptions& options) {
  return !options.get.target.empty() && KindOfTarget(options.get.target) != kCpuKind;
}

int64_t KernelBytes(const Graph& graph, ValueId value) {
  return CountOf(graph.shape(value)) * ByteSize(graph.dtype(value));
}

Result<std::unique_ptr<Executor>> Executor::Create(Client& client, Graph& graph, const CallPlan& plan,
                                                   const ExecutorOptions& options) {
  std::unique_ptr<Executor> executor = IsForDevice(options) ? HONE_TRY(MakeDeviceExecutor(client, graph, plan, options))
                                                            : HONE_TRY(MakeHostExecutor(client, graph, plan, options));
  graph.ForgetElements();
  return executor;
}

void Executor::PlanMemory(int64_t alignment) {
  std::map<ValueId, Lifetime> alive;
  auto step = [](size_t i) { return static_cast<int>(i); };
  auto root = [&](ValueId value) { return plan_.place[value].root; };
  for (size_t i = 0; i < plan_.calls.size(); ++i) {
    for (ValueId output : OutputsOf(graph_, plan_.calls[i])) {
      ValueId written = root(output);
      auto [found, is_new] =
          alive.emplace(written, Lifetime{RoundUp(KernelBytes(graph_, written), alignment), step(i), step(i)});
      found->second.last = step(i);
    }
    for (ValueId input : plan_.calls[i].inputs) {
      if (auto read = alive.find(root(input)); read != alive.end()) read->second.last = step(i);
    }
  }
  for (ValueId output : graph_.outputs) {
    if (auto found = alive.find(root(output)); found != alive.end()) found->second.last = step(plan_.calls.size());
  }
  std::vector<Lifetime> lifetimes;
  for (const auto& [_, lifetime] : alive) lifetimes.push_back(lifetime);
  arena_ = PlanArena(lifetimes);
  size_t at = 0;
  for (const auto& [value, _] : alive) offsets_[value] = arena_.offsets[at++];
}

Error Executor::InCall(Error error, const KernelCall& call) {
  error.where =
      fmt::format("{} (node {}){}{}", call.label, call.nodes.front(), error.where.empty() ? "" : ": ", error.where);
  return error;
}

}  // namespace hone
