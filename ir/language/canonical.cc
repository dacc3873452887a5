#include "ir/language/canonical.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "ir/graph/print.h"
#include "ir/language/parse_tree.h"

namespace hone {
namespace {

// A stage's axes and reduction axes carry copies of the extents that the text shows at the tensor; only what the text
// shows is visited, in its order.
template <typename Visit>
void VisitShownExtents(Kernel& kernel, const Visit& visit) {
  for (TensorId id : kernel.operands) {
    Tensor& tensor = kernel.tensors[id];
    for (Expr& extent : tensor.declared) visit(extent);
    for (Expr& extent : tensor.shape) visit(extent);
  }
  for (Stage& stage : kernel.stages) {
    Tensor& tensor = kernel.tensors[stage.output];
    if (tensor.kind == TensorKind::kIntermediate)
      for (Expr& extent : tensor.shape) visit(extent);
    for (Axis& axis : stage.reduce_axes) visit(axis.extent);
  }
}

void RenumberSizes(Kernel& kernel, const std::vector<int>& order) {
  std::vector<int> position(kernel.sizes.size());
  std::vector<Size> sizes;
  for (size_t i = 0; i < order.size(); ++i) {
    position[static_cast<size_t>(order[i])] = static_cast<int>(i);
    sizes.push_back(std::move(kernel.sizes[static_cast<size_t>(order[i])]));
  }
  auto renumber = [&](Expr& expr) {
    expr = Rewrite(expr, [&](const Expr& e) {
      return e.op() == Op::kSize ? SizeRef(position[static_cast<size_t>(e.int_value())]) : e;
    });
  };
  for (Tensor& tensor : kernel.tensors) {
    for (Expr& extent : tensor.declared) renumber(extent);
    for (Expr& extent : tensor.shape) renumber(extent);
  }
  for (Stage& stage : kernel.stages) {
    for (Axis& axis : stage.axes) renumber(axis.extent);
    for (Axis& axis : stage.reduce_axes) renumber(axis.extent);
    renumber(stage.body);
  }
  kernel.sizes = std::move(sizes);
}

bool InOrder(const std::vector<int>& order) {
  for (size_t i = 0; i < order.size(); ++i)
    if (order[i] != static_cast<int>(i)) return false;
  return true;
}

void NameSizes(Kernel& kernel) {
  std::vector<int> order = SizesByFirstUse(kernel);
  if (order.size() != kernel.sizes.size() || !InOrder(order)) RenumberSizes(kernel, order);
  for (size_t i = 0; i < kernel.sizes.size(); ++i) kernel.sizes[i].name = fmt::format("s{}", i);
}

void NameTensorsAndAxes(Kernel& kernel) {
  int next = 0;
  for (TensorId id : kernel.operands) kernel.tensors[id].name = fmt::format("t{}", next++);
  for (Stage& stage : kernel.stages) {
    Tensor& tensor = kernel.tensors[stage.output];
    if (tensor.kind == TensorKind::kIntermediate) tensor.name = fmt::format("t{}", next++);
    int axis_number = 0;
    for (std::vector<Axis>* axes : {&stage.axes, &stage.reduce_axes})
      for (Axis& axis : *axes) {
        axis.name = fmt::format("i{}", axis_number++);
        if (IsReservedWord(axis.name)) axis.name += "_";  // i8 is a type
      }
  }
}

std::string ClassText(Kernel kernel, std::vector<int64_t>* shape) {
  VisitShownExtents(kernel, [&](Expr& extent) {
    if (extent.op() != Op::kInt) return;
    int64_t value = extent.int_value();
    extent = SizeRef(static_cast<int>(kernel.sizes.size()));
    kernel.sizes.push_back(Size{{}, value, value});
  });
  kernel.options = {};
  NameSizes(kernel);
  for (const Size& size : kernel.sizes) {
    shape->push_back(size.lo);
    if (!size.is_constant()) shape->push_back(size.hi);
  }
  return PrintKernel(kernel, SizeValues::kHidden);
}

// Where a canonical text says for how many threads, or would: the last of the options, which end the head.
struct ThreadsOption {
  size_t begin, end;      // with the word or comma before it
  bool is_first = false;  // of the options
  int threads = 0;
};
std::optional<ThreadsOption> FindThreads(std::string_view text) {
  constexpr std::string_view kWith = "\nwith ", kThreads = "threads=", kBody = " {\n";
  const size_t body = text.find(kBody);
  if (body == std::string_view::npos) return std::nullopt;
  const size_t with = text.substr(0, body).rfind(kWith);
  ThreadsOption option{body, body, with == std::string_view::npos};
  const size_t word = option.is_first ? with : text.substr(0, body).find(kThreads, with);
  if (word == std::string_view::npos) return option;
  option.is_first = word == with + kWith.size();
  option.begin = option.is_first ? with : word - std::string_view(", ").size();
  std::from_chars(text.data() + word + kThreads.size(), text.data() + body, option.threads);
  return option;
}

}  // namespace

int ThreadsToSay(int threads, int cores) {
  if (threads <= 0) threads = cores;
  return threads > 1 && threads == cores ? 0 : threads;
}

int ThreadsSaidBy(std::string_view canonical) {
  std::optional<ThreadsOption> option = FindThreads(canonical);
  return option ? option->threads : 0;
}

std::string WithThreads(std::string_view canonical, int threads) {
  std::string text(canonical);
  std::optional<ThreadsOption> option = FindThreads(canonical);
  if (!option) return text;
  std::string said;
  if (threads > 0) said = fmt::format("{}threads={}", option->is_first ? "\nwith " : ", ", threads);
  return text.replace(option->begin, option->end - option->begin, said);
}

bool SameButThreads(std::string_view a, std::string_view b) { return a == b || WithThreads(a, 0) == WithThreads(b, 0); }

Kernel WithCanonicalNames(const Kernel& kernel) {
  Kernel named = kernel;
  named.name = std::string("k");
  NameSizes(named);
  NameTensorsAndAxes(named);
  return named;
}

Canonical Canonicalize(const Kernel& kernel) {
  Canonical canonical;
  Kernel named = WithCanonicalNames(kernel);
  canonical.text = PrintKernel(named);
  canonical.class_text = ClassText(std::move(named), &canonical.shape);
  return canonical;
}

}  // namespace hone
