// Copies for later trips of a pipeline. A device that copies from global memory to block storage by itself does it
// while the thread goes on; where it does not, or what is stored is no plain copy, the thread loads and stores as ever.
#include <algorithm>

#include "codegen/gpu/launch_maker.h"

namespace hone::straight {
namespace {

constexpr int64_t kBytesAtOnce[] = {16, 8, 4};

bool IsZero(const ValueNode& value) { return value.IsConstant() && value.int_value == 0 && value.float_value == 0; }

}  // namespace

// Whether so many elements from the lane on are, and begin at a multiple of their size.
bool LaunchMaker::LieSideBySide(const Linear& flat, int64_t lane, int64_t count) {
  if (vector_) SetLane(lane);
  const Linear at = Known(flat);
  if (at.constant() % count != 0 ||
      !std::ranges::all_of(at.terms(), [&](const Term& term) { return term.coef % count == 0; }))
    return false;
  if (count == 1) return true;
  SetLane(lane + count - 1);
  const Linear last = Known(flat);
  SetLane(lane);
  return last - at == Linear(count - 1);
}

Result<int64_t> LaunchMaker::EmitCopyAhead(const Stmt& store, const Linear& flat, int64_t lane, int64_t end) {
  const ValueNode& value = *store.value;
  const Buffer& buffer = program_.buffer(store.buffer);
  if (value.kind != ValueNode::Kind::kLoad || store.combine != Reduction::kNone ||
      !IsInGlobalMemory(program_.buffer(value.buffer)) || program_.buffer(value.buffer).dtype != buffer.dtype ||
      (!value.guard.empty() && !IsZero(*value.args[0])))
    return 0;
  const Linear from = program_.FlatIndex(value.buffer, value.index);
  for (int64_t bytes : kBytesAtOnce) {
    const int64_t count = bytes / ByteSize(buffer.dtype);
    if (count == 0 || lane + count > end || (count > 1 && !vector_)) continue;
    if (!LieSideBySide(flat, lane, count) || !LieSideBySide(from, lane, count)) continue;
    const ValueId condition = HONE_TRY(AllHold(value.guard));
    bool is_one = true;
    for (int64_t other = lane + 1; other < lane + count && is_one && !value.guard.empty(); ++other) {
      SetLane(other);
      is_one = HONE_TRY(AllHold(value.guard)) == condition;
    }
    if (vector_) SetLane(lane);
    int64_t holds = 1;
    const bool is_known = !condition || builder_.IsConstant(condition, &holds);
    if (!is_one || holds == 0) continue;
    const Address to = HONE_TRY(PlaceOfElement(store.buffer, flat)), source = HONE_TRY(AddressOf(from));
    Node node{.kind = Node::Kind::kCopyAhead, .a = to.base, .b = source.base, .offset = to.offset};
    node.buffer = store.buffer;
    node.source = value.buffer;
    node.source_offset = source.offset;
    node.lanes = static_cast<int>(count);
    if (!is_known) node.args.push_back(condition);
    builder_.Append(std::move(node));
    builder_.Forget(store.buffer);
    return count;
  }
  return 0;
}

void LaunchMaker::Commit() {
  if (limits_.has_async_copies) builder_.Append({.kind = Node::Kind::kCommit});
}

void LaunchMaker::Await(int64_t groups) {
  if (!limits_.has_async_copies) return;
  builder_.Append({.kind = Node::Kind::kAwait, .offset = groups});
  for (BufferId id : launch_.shared) builder_.Forget(id);
}

}  // namespace hone::straight
