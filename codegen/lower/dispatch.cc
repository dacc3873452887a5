#include "codegen/lower/dispatch.h"

#include <algorithm>
#include <set>

#include "base/arithmetic.h"
#include "base/check.h"

namespace hone {
namespace {

// The buffer that a nest of LoopProgram::pack fills.
BufferId PackedBuffer(const LoopProgram& program, const Stmt& nest) {
  BufferId packed;
  for (BufferId id : UsedBuffers(program, nest))
    if (program.buffer(id).scope == Scope::kConst) packed = id;
  HONE_CHECK(packed);
  return packed;
}

class Planner {
 public:
  explicit Planner(Dispatch& dispatch) : dispatch_(dispatch) {}

  void Run() {
    for (size_t b = 0; b < dispatch_.bodies.size(); ++b) AddPacked(b);
    for (size_t b = 0; b < dispatch_.bodies.size(); ++b) AddInPlace(b);
    // One operand's copies stand together.
    std::vector<int> operands;
    for (const PackedCopy& copy : dispatch_.copies)
      if (std::find(operands.begin(), operands.end(), copy.operand) == operands.end()) operands.push_back(copy.operand);
    auto place = [&](const PackedCopy& copy) { return std::find(operands.begin(), operands.end(), copy.operand); };
    std::stable_sort(dispatch_.copies.begin(), dispatch_.copies.end(),
                     [&](const PackedCopy& a, const PackedCopy& b) { return place(a) < place(b); });
    for (size_t i = 1; i < dispatch_.copies.size(); ++i) {
      const PackedCopy& before = dispatch_.copies[i - 1];
      if (before.operand == dispatch_.copies[i].operand)
        dispatch_.copies[i].offset = RoundUp(before.offset + before.bytes, 64);
    }
    for (auto& [body, buffer, layout] : readers_) {
      const int operand = Of(body).buffer(buffer).operand;
      auto copy = std::find_if(dispatch_.copies.begin(), dispatch_.copies.end(),
                               [&](const PackedCopy& c) { return c.operand == operand && c.layout == layout; });
      HONE_CHECK(copy != dispatch_.copies.end());
      dispatch_.bodies[body].offsets[buffer] = copy->offset;
    }
  }

 private:
  struct Reader {
    size_t body;
    BufferId buffer;
    std::string layout;
  };

  const LoopProgram& Of(size_t body) const { return *dispatch_.bodies[body].program; }

  void AddPacked(size_t body) {
    const LoopProgram& program = Of(body);
    dispatch_.bodies[body].offsets = IdVector<BufferId, int64_t>(program.buffers.size());
    for (size_t n = 0; n < program.pack.size(); ++n) {
      const BufferId id = PackedBuffer(program, *program.pack[n]);
      const Buffer& buffer = program.buffer(id);
      Add({buffer.operand, buffer.packed_layout, 0, buffer.elements * ByteSize(buffer.dtype), ByteSize(buffer.dtype),
           body, static_cast<int>(n)});
      readers_.push_back({body, id, buffer.packed_layout});
    }
  }

  // An operand that another program has packed, and this one reads as it is.
  void AddInPlace(size_t body) {
    const LoopProgram& program = Of(body);
    std::set<BufferId> used;
    for (const StmtPtr& nest : program.entry) used.merge(UsedBuffers(program, *nest));
    for (BufferId id : used) {
      const Buffer& buffer = program.buffer(id);
      if (buffer.scope != Scope::kDefault || dispatch_.PackedBytes(buffer.operand) == 0) continue;
      const std::string layout = std::string(Name(buffer.dtype)) + " as it is";
      Add({buffer.operand, layout, 0, buffer.elements * ByteSize(buffer.dtype), ByteSize(buffer.dtype), body, -1});
      readers_.push_back({body, id, layout});
    }
  }

  void Add(PackedCopy copy) {
    for (const PackedCopy& known : dispatch_.copies)
      if (known.operand == copy.operand && known.layout == copy.layout) return;
    dispatch_.copies.push_back(std::move(copy));
  }

  Dispatch& dispatch_;
  std::vector<Reader> readers_;
};

}  // namespace

int64_t Dispatch::PackedBytes(int operand) const {
  int64_t bytes = 0;
  for (const PackedCopy& copy : copies)
    if (copy.operand == operand) bytes += RoundUp(copy.bytes, 64);
  return bytes;
}

std::string Dispatch::PackedLayout(int operand) const {
  std::string text;
  for (const PackedCopy& copy : copies)
    if (copy.operand == operand) text += (text.empty() ? "" : "; ") + copy.layout;
  return text;
}

Dispatch PlanDispatch(int size, std::vector<ProgramBody> bodies) {
  Dispatch dispatch;
  dispatch.size = size;
  dispatch.bodies = std::move(bodies);
  Planner(dispatch).Run();
  return dispatch;
}

}  // namespace hone
