#include "ir/reference/interpret.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "ir/graph/element.h"
#include "ir/reference/accuracy.h"
#include "ir/reference/interpret_columns.h"
#include "ir/reference/interpret_program.h"

namespace hone {

using namespace interpreted;

namespace {

// Elements that a stage has computed. Small tensors are remembered whole, of large ones the latest million.
class Memo {
 public:
  explicit Memo(int64_t elements) : elements_(elements) {}

  const Reference* Find(int64_t index) const {
    if (IsDense())
      return !known_.empty() && known_[static_cast<size_t>(index)] ? &dense_[static_cast<size_t>(index)] : nullptr;
    auto it = sparse_.find(index);
    return it == sparse_.end() ? nullptr : &it->second;
  }
  void Store(int64_t index, const Reference& reference) {
    if (IsDense()) {
      if (known_.empty()) known_.resize(static_cast<size_t>(elements_)), dense_.resize(static_cast<size_t>(elements_));
      known_[static_cast<size_t>(index)] = true;
      dense_[static_cast<size_t>(index)] = reference;
      return;
    }
    if (sparse_.size() >= kSparseEntries) sparse_.clear();
    sparse_.emplace(index, reference);
  }

 private:
  static constexpr int64_t kDenseElements = 1 << 18;
  static constexpr size_t kSparseEntries = 1 << 20;
  bool IsDense() const { return elements_ <= kDenseElements; }

  int64_t elements_;
  std::vector<uint8_t> known_;
  std::vector<Reference> dense_;
  std::unordered_map<int64_t, Reference> sparse_;
};

// A program with its columns and the element that it works on.
struct Frame {
  Frame(const Program& program, int64_t elements) : program(&program), memo(elements) {
    size_t columns = program.needs_axis_columns ? program.extents.size() : 0;
    for (const Register& reg : program.registers)
      columns += 1 + (!reg.plain && (reg.is_float || reg.has_slack) ? 1 : 0);
    storage.resize(columns * kBlockLanes);
    uint64_t* next = storage.data();
    auto take = [&] { return std::exchange(next, next + kBlockLanes); };
    for (const Register& reg : program.registers) {
      Column column;
      if (reg.is_float)
        column.value = reinterpret_cast<double*>(take());
      else
        column.integer = reinterpret_cast<int64_t*>(take());
      if (!reg.plain && (reg.is_float || reg.has_slack)) column.magnitude = reinterpret_cast<double*>(take());
      if (reg.constant && reg.is_float) std::fill_n(column.value, kBlockLanes, reg.float_value);
      if (reg.constant && !reg.is_float) std::fill_n(column.integer, kBlockLanes, reg.int_value);
      registers.Add(column);
    }
    if (program.needs_axis_columns)
      for (size_t a = 0; a < program.extents.size(); ++a) axes.push_back(reinterpret_cast<int64_t*>(take()));
    outer.resize(program.extents.size());
  }

  const Program* program;
  Memo memo;
  std::vector<uint64_t> storage;
  IdVector<RegisterId, Column> registers;
  std::vector<int64_t*> axes;  // columns of axis values, if some index needs them
  std::vector<int64_t> outer;  // values of the axes that are the same in every lane
};

}  // namespace

struct Interpreter::Impl {
  Impl(const Kernel& k, std::span<const OperandView> inputs) : kernel(k), tolerance(Tolerance(kernel)) {
    HONE_CHECK(IsStatic(kernel));
    // Kernels whose results are all integers may still decide by floats on the way.
    if (tolerance == 0) tolerance = FloatTolerance(kernel, kernel.options.accuracy, DType::kF32);
    data = IdVector<TensorId, const void*>(kernel.tensors.size());
    size_t next = 0;
    for (TensorId id : kernel.operands) {
      if (kernel.tensors[id].kind == TensorKind::kInput)
        data[id] = inputs[next++].data;
      else
        outputs.push_back(id);
    }
    HONE_CHECK(next == inputs.size());
    programs = CompilePrograms(kernel);
    for (const Program& program : programs) {
      if (!program.stage) {
        frames.Add(nullptr);
        continue;
      }
      int64_t elements = ElementCount(kernel, kernel.tensors[program.stage->output]);
      frames.Add(std::make_unique<Frame>(program, elements));
    }
    for (TensorId id : outputs)
      for (StageId stage : kernel.stages.ids())
        if (kernel.stages[stage].output == id) output_stages.push_back(stage);
  }

  Reference Element(StageId stage, int64_t index) {
    Frame& frame = *frames[stage];
    if (const Reference* known = frame.memo.Find(index)) return *known;
    Reference reference = Compute(frame, index);
    frame.memo.Store(index, reference);
    return reference;
  }

  Reference Compute(Frame& frame, int64_t index) {
    const Program& program = *frame.program;
    if (program.lanes_are_elements) {
      Reference reference;
      RunElements(frame, std::span(&index, 1), std::span(&reference, 1));
      return reference;
    }
    for (size_t a = program.outer; a-- > 0;) {
      frame.outer[a] = index % program.extents[a];
      index /= program.extents[a];
    }
    RunUniform(frame);
    DType type = kernel.tensors[program.stage->output].dtype;
    ReductionState state(program.stage->reduction, type, tolerance);
    const Register& result = program.registers[program.result];
    for (int64_t first = 0; first < program.lanes; first += static_cast<int64_t>(kBlockLanes)) {
      size_t n = static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(kBlockLanes), program.lanes - first));
      if (program.needs_axis_columns) FillReductionAxes(frame, first, n);
      for (const Instruction& instruction : program.varying) Run(frame, instruction, first, n);
      state.Add(result, frame.registers[program.result], n);
    }
    return state.Result();
  }

  void RunElements(Frame& frame, std::span<const int64_t> indices, std::span<Reference> results) {
    const Program& program = *frame.program;
    RunUniform(frame);
    for (size_t first = 0; first < indices.size(); first += kBlockLanes) {
      size_t n = std::min(kBlockLanes, indices.size() - first);
      if (program.needs_axis_columns) {
        for (size_t lane = 0; lane < n; ++lane) {
          int64_t rest = indices[first + lane];
          for (size_t a = program.extents.size(); a-- > 0;) {
            frame.axes[a][lane] = rest % program.extents[a];
            rest /= program.extents[a];
          }
        }
      }
      for (const Instruction& instruction : program.varying) Run(frame, instruction, 0, n);
      const Register& reg = program.registers[program.result];
      const Column& column = frame.registers[program.result];
      for (size_t lane = 0; lane < n; ++lane) {
        Reference& reference = results[first + lane];
        reference.value = reg.is_float ? column.value[lane] : static_cast<double>(column.integer[lane]);
        if (column.magnitude)
          reference.magnitude = column.magnitude[lane];
        else
          reference.magnitude = reg.is_float && std::abs(reference.value) < kInfinity ? std::abs(reference.value) : 0;
      }
    }
  }

  void RunUniform(Frame& frame) {
    const Program& program = *frame.program;
    for (const Instruction& instruction : program.uniform) {
      Run(frame, instruction, 0, 1);
      if (!program.registers[instruction.result].broadcast) continue;
      Column& column = frame.registers[instruction.result];
      size_t n =
          program.lanes_are_elements ? kBlockLanes : static_cast<size_t>(std::min<int64_t>(kBlockLanes, program.lanes));
      if (column.value) std::fill_n(column.value + 1, n - 1, column.value[0]);
      if (column.integer) std::fill_n(column.integer + 1, n - 1, column.integer[0]);
      if (column.magnitude) std::fill_n(column.magnitude + 1, n - 1, column.magnitude[0]);
    }
  }

  // Values of the reduction axes for the points from `first` on, row by row.
  void FillReductionAxes(Frame& frame, int64_t first, size_t n) {
    const Program& program = *frame.program;
    std::vector<int64_t>& point = frame.outer;
    for (size_t a = program.extents.size(); a-- > program.outer;) {
      point[a] = first % program.extents[a];
      first /= program.extents[a];
    }
    for (size_t lane = 0; lane < n; ++lane) {
      for (size_t a = program.outer; a < program.extents.size(); ++a) frame.axes[a][lane] = point[a];
      for (size_t a = program.extents.size(); a-- > program.outer;) {
        if (++point[a] < program.extents[a]) break;
        point[a] = 0;
      }
    }
  }

  // ---- indices

  // The part of an index that all lanes share.
  int64_t Base(const Frame& frame, const LaneIndex& index) const {
    const Program& program = *frame.program;
    int64_t base = index.affine.constant;
    if (program.lanes_are_elements) return base;
    for (size_t a = 0; a < program.outer; ++a) base += index.affine.coef[a] * frame.outer[a];
    return base;
  }

  void FillIndex(const Frame& frame, const LaneIndex& index, int64_t first, size_t n, int64_t* out) const {
    const Program& program = *frame.program;
    int64_t base = Base(frame, index);
    switch (index.pattern.kind) {
      case LanePattern::kUniform: std::fill_n(out, n, base); return;
      case LanePattern::kLinear:
        for (size_t i = 0; i < n; ++i) out[i] = base + index.pattern.step * (first + static_cast<int64_t>(i));
        return;
      case LanePattern::kTable: {
        const int64_t* table = index.pattern.table.data() + first;
        for (size_t i = 0; i < n; ++i) out[i] = base + table[i];
        return;
      }
      case LanePattern::kGeneric: {
        std::fill_n(out, n, base);
        for (size_t a = program.lanes_are_elements ? 0 : program.outer; a < program.extents.size(); ++a) {
          int64_t coef = index.affine.coef[a];
          if (coef == 0) continue;
          for (size_t i = 0; i < n; ++i) out[i] += coef * frame.axes[a][i];
        }
        return;
      }
    }
  }

  // Element numbers of a load. Lanes where a check fails get -1; false if none does.
  bool FillOffsets(const Frame& frame, const LoadSite& site, int64_t first, size_t n, int64_t* out) const {
    if (site.affine) {
      FillIndex(frame, site.offset, first, n, out);
    } else {
      std::fill_n(out, n, 0);
      int64_t dim_index[kBlockLanes];
      for (const LoadSite::Dim& dim : site.dims) {
        const int64_t* column = dim_index;
        if (dim.index_register)
          column = frame.registers[dim.index_register].integer;
        else
          FillIndex(frame, dim.index, first, n, dim_index);
        for (size_t i = 0; i < n; ++i) out[i] += dim.stride * column[i];
      }
    }
    if (!site.checks) return false;
    bool any = false;
    int64_t dim_index[kBlockLanes];
    for (const LoadSite::Dim& dim : site.dims) {
      if (!dim.check) continue;
      const int64_t* column = dim_index;
      if (dim.index_register) {
        column = frame.registers[dim.index_register].integer;
      } else {
        int64_t base = Base(frame, dim.index);
        if (base + dim.index.pattern.min >= 0 && base + dim.index.pattern.max < dim.extent) continue;
        FillIndex(frame, dim.index, first, n, dim_index);
      }
      for (size_t i = 0; i < n; ++i) {
        bool inside = static_cast<uint64_t>(column[i]) < static_cast<uint64_t>(dim.extent);
        any |= !inside;
        if (!inside) out[i] = -1;
      }
    }
    return any;
  }

  // ---- loads

  template <typename T, typename Out>
  void Gather(const Frame& frame, const LoadSite& site, int64_t first, size_t n, Out* out) const {
    const T* source = static_cast<const T*>(data[site.tensor]);
    if (site.affine && !site.checks && site.offset.pattern.kind != LanePattern::kGeneric) {
      const T* base = source + Base(frame, site.offset);
      const LanePattern& pattern = site.offset.pattern;
      if (pattern.kind == LanePattern::kTable) {
        const int64_t* table = pattern.table.data() + first;
        for (size_t i = 0; i < n; ++i) out[i] = static_cast<Out>(base[table[i]]);
      } else if (pattern.kind == LanePattern::kLinear && pattern.step == 1) {
        for (size_t i = 0; i < n; ++i) out[i] = static_cast<Out>(base[first + static_cast<int64_t>(i)]);
      } else {
        int64_t step = pattern.kind == LanePattern::kLinear ? pattern.step : 0;
        for (size_t i = 0; i < n; ++i) out[i] = static_cast<Out>(base[step * (first + static_cast<int64_t>(i))]);
      }
      return;
    }
    int64_t offsets[kBlockLanes];
    if (FillOffsets(frame, site, first, n, offsets)) {
      for (size_t i = 0; i < n; ++i)
        out[i] = offsets[i] < 0 ? static_cast<Out>(site.fill) : static_cast<Out>(source[offsets[i]]);
    } else {
      for (size_t i = 0; i < n; ++i) out[i] = static_cast<Out>(source[offsets[i]]);
    }
  }

  void LoadComputed(const Frame& frame, const LoadSite& site, int64_t first, size_t n, const Column& out) {
    int64_t offsets[kBlockLanes];
    FillOffsets(frame, site, first, n, offsets);
    Reference reference;
    for (size_t i = 0; i < n; ++i) {
      if (offsets[i] < 0)
        reference = {site.fill, IsFloat(site.dtype) && std::abs(site.fill) < kInfinity ? std::abs(site.fill) : 0};
      else if (i == 0 || offsets[i] != offsets[i - 1])
        reference = Element(site.computed, offsets[i]);
      if (out.value)
        out.value[i] = reference.value;
      else
        out.integer[i] = static_cast<int64_t>(reference.value);
      out.magnitude[i] = reference.magnitude;
    }
  }

  void Load(Frame& frame, const Instruction& instruction, int64_t first, size_t n) {
    const LoadSite& site = frame.program->sites[instruction.site];
    const Column& out = frame.registers[instruction.result];
    if (site.computed) return LoadComputed(frame, site, first, n, out);
    VisitElement(site.dtype, [&]<typename T>(std::type_identity<T>) {
      if constexpr (std::is_integral_v<T>)
        Gather<T>(frame, site, first, n, out.integer);
      else
        Gather<T>(frame, site, first, n, out.value);
    });
    if (site.dtype == DType::kBool)
      for (size_t i = 0; i < n; ++i) out.integer[i] = out.integer[i] != 0;
    // An index that a float decided may have picked another element; that is not followed further.
    if (out.magnitude) std::fill_n(out.magnitude, n, 0.0);
  }

  void Run(Frame& frame, const Instruction& instruction, int64_t first, size_t n) {
    if (instruction.op == Op::kLoad) return Load(frame, instruction, first, n);
    const Program& program = *frame.program;
    const Column& out = frame.registers[instruction.result];
    if (instruction.op == Op::kAxis) return FillIndex(frame, instruction.index, first, n, out.integer);
    const Register* regs[3] = {};
    Column args[3];
    for (int i = 0; i < 3 && instruction.args[i]; ++i) {
      regs[i] = &program.registers[instruction.args[i]];
      args[i] = frame.registers[instruction.args[i]];
    }
    RunColumnOperation(instruction, regs, args, program.registers[instruction.result], out, n, tolerance);
  }

  double Cost(StageId stage, IdVector<StageId, double>& known) const {
    if (known[stage] > 0) return known[stage];
    const Program& program = programs[stage];
    double lanes = static_cast<double>(program.lanes);
    double cost = static_cast<double>(program.uniform.size()) +
                  lanes * std::max(1.0, static_cast<double>(program.varying.size()) / 3);
    auto add_computed = [&](const std::vector<Instruction>& instructions, double times) {
      for (const Instruction& instruction : instructions) {
        if (instruction.op != Op::kLoad) continue;
        const LoadSite& site = program.sites[instruction.site];
        if (!site.computed) continue;
        double elements = static_cast<double>(ElementCount(kernel, kernel.tensors[site.tensor]));
        cost += std::min(times, elements) * Cost(site.computed, known);
      }
    };
    add_computed(program.uniform, 1);
    add_computed(program.varying, lanes);
    return known[stage] = cost;
  }

  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Kernel kernel;
  double tolerance;
  IdVector<TensorId, const void*> data;  // inputs only
  std::vector<TensorId> outputs;
  std::vector<StageId> output_stages;
  IdVector<StageId, Program> programs;
  IdVector<StageId, std::unique_ptr<Frame>> frames;
};

Interpreter::Interpreter(const Kernel& kernel, std::span<const OperandView> inputs)
    : impl_(std::make_unique<Impl>(kernel, inputs)) {}

Interpreter::~Interpreter() = default;

Reference Interpreter::At(int output, int64_t index) {
  return impl_->Compute(*impl_->frames[impl_->output_stages[static_cast<size_t>(output)]], index);
}

void Interpreter::Evaluate(int output, std::span<const int64_t> indices, std::span<Reference> results) {
  HONE_CHECK(indices.size() == results.size());
  Frame& frame = *impl_->frames[impl_->output_stages[static_cast<size_t>(output)]];
  if (frame.program->lanes_are_elements) return impl_->RunElements(frame, indices, results);
  for (size_t i = 0; i < indices.size(); ++i) results[i] = impl_->Compute(frame, indices[i]);
}

double Interpreter::CostPerElement(int output) const {
  IdVector<StageId, double> known(impl_->programs.size(), 0);
  return impl_->Cost(impl_->output_stages[static_cast<size_t>(output)], known);
}

}  // namespace hone
