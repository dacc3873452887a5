#include "codegen/gpu/simt_memory.h"

#include <fmt/format.h>

#include "ir/graph/element.h"

namespace hone::simt {
namespace {

// Whether two different threads may act at the same time.
bool Overlap(const Actor& a, const Actor& b) {
  return a.block >= 0 && (a.block != b.block || (a.thread != b.thread && a.interval == b.interval));
}

}  // namespace

Memory::Memory(std::string name, DType type, int64_t elements, void* data, bool is_written)
    : name_(std::move(name)), type_(type), elements_(elements), data_(data) {
  if (data_ == nullptr) {
    own_.assign(static_cast<size_t>(elements * ByteSize(type)), std::byte{0x7f});
    data_ = own_.data();
  }
  traces_.resize(static_cast<size_t>(elements));
  for (Trace& trace : traces_) trace.is_written = is_written;
}

std::string Memory::Race(int64_t index, const Actor& a, const Actor& b, bool both_write) const {
  if (a.block != b.block)
    return fmt::format("race: blocks {} and {} both access {}[{}], and no launch ends between", a.block, b.block, name_,
                       index);
  return fmt::format("race: threads {} and {} {} {}[{}], and no barrier lies between", a.thread, b.thread,
                     both_write ? "both write" : "access", name_, index);
}

std::string Memory::Read(int64_t index, const Actor& actor) {
  if (index < 0 || index >= elements_)
    return fmt::format("stray read: {}[{}], which has {} elements", name_, index, elements_);
  Trace& trace = traces_[static_cast<size_t>(index)];
  std::string wrong;
  if (!trace.is_written) wrong = fmt::format("{}[{}] is read and was never written", name_, index);
  if (Overlap(trace.writer, actor)) wrong = Race(index, trace.writer, actor, false);
  if (trace.reader.block >= 0) {
    trace.several_blocks |= trace.reader.block != actor.block;
    const bool same_interval = trace.reader.block == actor.block && trace.reader.interval == actor.interval;
    trace.several_threads = same_interval && (trace.several_threads || trace.reader.thread != actor.thread);
  }
  trace.reader = actor;
  return wrong;
}

std::string Memory::Write(int64_t index, const Actor& actor) {
  if (index < 0 || index >= elements_)
    return fmt::format("stray write: {}[{}], which has {} elements", name_, index, elements_);
  Trace& trace = traces_[static_cast<size_t>(index)];
  std::string wrong;
  const bool read_beside = trace.reader.block == actor.block && trace.reader.interval == actor.interval;
  if (Overlap(trace.writer, actor)) wrong = Race(index, trace.writer, actor, true);
  if (Overlap(trace.reader, actor) || trace.several_blocks || (read_beside && trace.several_threads))
    wrong = Race(index, trace.reader, actor, false);
  trace.writer = actor;
  trace.is_written = true;
  return wrong;
}

double Memory::Load(int64_t index) const { return LoadElement(type_, data_, static_cast<size_t>(index)); }
void Memory::Store(int64_t index, double value) { StoreElement(type_, value, data_, static_cast<size_t>(index)); }

void Memory::Settle(bool forget) {
  for (Trace& trace : traces_) {
    const bool is_written = trace.is_written && !forget;
    trace = {};
    trace.is_written = is_written;
  }
}

}  // namespace hone::simt
