#include "ir/rewrites/cache_read.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "ir/graph/stage_graph.h"
#include "ir/schedule/refuse.h"

namespace hone {
Result<Kernel> CacheRead(Kernel kernel, TensorId tensor_id, StageId index, const std::string& result) {
  if (FindTensor(kernel, result)) return Refuse(fmt::format("the name {} is taken", result));
  Stage& reader = kernel.stages[index];
  const Tensor source = kernel.tensors[tensor_id];
  if (!ReadsTensor(reader, tensor_id))
    return Refuse(fmt::format("{} does not read {}", kernel.tensors[reader.output].name, source.name));
  const TensorId copy_id =
      kernel.tensors.Add({result, source.dtype, source.shape, {}, TensorKind::kIntermediate, false});

  // Axis names: the reader's, where its first load indexes plainly.
  Stage stage;
  stage.output = copy_id;
  const Expr* first_load = nullptr;
  Walk(reader.body, [&](const Expr& e) {
    if (!first_load && e.Loads(tensor_id)) first_load = &e;
  });
  std::set<std::string> taken;
  for (size_t d = 0; d < source.shape.size(); ++d) {
    std::string name;
    if (const Expr& at = first_load->arg(d); at.op() == Op::kAxis) {
      const std::string& axis = reader.axis(at.axis()).name;
      if (!taken.contains(axis)) name = axis;
    }
    for (size_t n = d; name.empty(); ++n)
      if (std::string free = fmt::format("d{}", n); !taken.contains(free)) name = free;
    taken.insert(name);
    stage.axes.push_back({name, source.shape[d]});
  }
  stage.body = LoadOf(tensor_id, source.dtype, AxisRefs(stage.spatial_ids()));
  reader.body = Rewrite(reader.body, [&](const Expr& e) {
    if (!e.Loads(tensor_id)) return e;
    return LoadOf(copy_id, source.dtype, e.args());
  });
  kernel.stages.Insert(index, std::move(stage));
  return kernel;
}

}  // namespace hone
