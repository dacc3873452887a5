#include "backends/runner/candidate_spec.h"

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/file.h"
#include "ir/reference/check_output.h"

namespace hone {

uint64_t SlackToEnd(uint64_t bytes, uint64_t alignment) {
  return (kPageBytes - bytes % kPageBytes) % kPageBytes / alignment * alignment;
}

Result<MappedBuffer> MapBuffer(const BufferPlan& plan, int arena_fd, bool populate) {
  size_t inner = plan.pages() * kPageBytes;
  MappedBuffer mapped;
  mapped.size = inner + 2 * kGuardBytes;
  mapped.base = ::mmap(nullptr, mapped.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped.base == MAP_FAILED) return ErrnoError(errno, "mmap");
  auto* pages = static_cast<std::byte*>(mapped.base) + kGuardBytes;
  mapped.data = pages + plan.slack;
  int rights = plan.writable ? PROT_READ | PROT_WRITE : PROT_READ;
  if (!plan.in_arena) {
    if (::mprotect(pages, inner, rights) != 0) return ErrnoError(errno, "mprotect");
    if (inner >= (size_t{4} << 20)) ::madvise(pages, inner, MADV_HUGEPAGE);
    FillScratch({pages, inner});
    return mapped;
  }
  int flags = MAP_SHARED | MAP_FIXED | (populate ? MAP_POPULATE : 0);
  size_t step = plan.repeat_bytes > 0 ? plan.repeat_bytes : inner;
  for (size_t done = 0; done < inner; done += step)
    if (::mmap(pages + done, std::min(step, inner - done), rights, flags, arena_fd,
               static_cast<off_t>(plan.file_offset)) == MAP_FAILED)
      return ErrnoError(errno, "mmap of the arena");
  return mapped;
}

// spec ::= mode:u8 workers:varint limit:svarint count:varint (bytes slack offset repeat : varint, writable:bool,
//          packed:varint)* workspace:varint sizes:(count:varint size:svarint*) timed_runs:varint warmup:svarint
//          min_sample:svarint samples:varint max_samples:varint (give_up contender narrow : f64)
std::string EncodeCandidateSpec(const CandidateSpec& spec) {
  ByteWriter writer;
  writer.U8(static_cast<uint8_t>(spec.mode));
  writer.Varint(static_cast<uint64_t>(spec.workers));
  writer.SignedVarint(spec.limit_ns);
  writer.Varint(spec.operands.size());
  for (size_t i = 0; i < spec.operands.size(); ++i) {
    const BufferPlan& plan = spec.operands[i];
    for (uint64_t value : {plan.bytes, plan.slack, plan.file_offset, plan.repeat_bytes}) writer.Varint(value);
    writer.Bool(plan.writable);
    writer.Varint(spec.packed[i]);
  }
  writer.Varint(spec.workspace);
  writer.Varint(spec.sizes.size());
  for (int64_t size : spec.sizes) writer.SignedVarint(size);
  writer.Varint(static_cast<uint64_t>(spec.timed_runs));
  writer.SignedVarint(spec.warmup_ns);
  writer.SignedVarint(spec.min_sample_ns);
  writer.Varint(static_cast<uint64_t>(spec.samples));
  writer.Varint(static_cast<uint64_t>(spec.max_samples));
  for (double value : {spec.give_up_ns, spec.contender_ns, spec.narrow}) writer.F64(value);
  return writer.Take();
}

Result<CandidateSpec> DecodeCandidateSpec(std::string_view body) {
  ByteReader reader(body);
  CandidateSpec spec;
  spec.mode = HONE_TRY(reader.Enumerator(RunMode::kCheck, RunMode::kRehearse));
  spec.workers = static_cast<int32_t>(HONE_TRY(reader.Varint()));
  spec.limit_ns = HONE_TRY(reader.SignedVarint());
  uint64_t count = HONE_TRY(reader.Count(kMaxOperands));
  for (uint64_t i = 0; i < count; ++i) {
    BufferPlan plan;
    for (uint64_t* value : {&plan.bytes, &plan.slack, &plan.file_offset, &plan.repeat_bytes})
      *value = HONE_TRY(reader.Varint());
    plan.writable = HONE_TRY(reader.Bool());
    spec.operands.push_back(plan);
    spec.packed.push_back(HONE_TRY(reader.Varint()));
  }
  spec.workspace = HONE_TRY(reader.Varint());
  spec.sizes.resize(HONE_TRY(reader.Count(kMaxDynamicSizes)));
  for (int64_t& size : spec.sizes) size = HONE_TRY(reader.SignedVarint());
  spec.timed_runs = static_cast<int32_t>(HONE_TRY(reader.Varint()));
  spec.warmup_ns = HONE_TRY(reader.SignedVarint());
  spec.min_sample_ns = HONE_TRY(reader.SignedVarint());
  spec.samples = static_cast<int32_t>(HONE_TRY(reader.Varint()));
  spec.max_samples = static_cast<int32_t>(HONE_TRY(reader.Varint()));
  for (double* value : {&spec.give_up_ns, &spec.contender_ns, &spec.narrow}) *value = HONE_TRY(reader.F64());
  HONE_TRY(reader.Finish());
  return spec;
}

}  // namespace hone
