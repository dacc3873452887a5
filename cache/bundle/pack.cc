#include "cache/bundle/pack.h"

#include <fmt/format.h>
#include <zstd.h>

#include "base/check.h"

namespace hone {
namespace {

// Code and schedules shrink by a tenth more than at the default level, which still packs 100 MB/s and core.
constexpr int kLevel = 6;

Error Damaged(std::string_view what) { return {ErrorKind::kCorrupt, fmt::format("a compressed part {}", what), ""}; }

}  // namespace

Packed Pack(std::string_view bytes) {
  Packed packed{Packing::kZstd, std::string(ZSTD_compressBound(bytes.size()), '\0')};
  const size_t size = ZSTD_compress(packed.stored.data(), packed.stored.size(), bytes.data(), bytes.size(), kLevel);
  HONE_CHECK(!ZSTD_isError(size));
  if (size >= bytes.size() || !CheckGrowth(Packing::kZstd, size, bytes.size()))
    return {Packing::kNone, std::string(bytes)};
  packed.stored.resize(size);
  packed.stored.shrink_to_fit();
  return packed;
}

Result<void> CheckGrowth(Packing packing, uint64_t stored, uint64_t size) {
  if (packing == Packing::kNone) {
    if (stored != size) return Error{ErrorKind::kCorrupt, "a part that is not compressed has two sizes", ""};
    return {};
  }
  if (size / kMostGrowth > stored || (size / kMostGrowth == stored && size % kMostGrowth > 0))
    return Error{ErrorKind::kLimit,
                 fmt::format("{} compressed bytes would become {}; more than {} times as many is no sound bundle's",
                             stored, size, kMostGrowth),
                 ""};
  return {};
}

Result<std::string> Unpack(Packing packing, std::string_view stored, uint64_t size) {
  HONE_TRY(CheckGrowth(packing, stored.size(), size));
  if (packing == Packing::kNone) return std::string(stored);
  const unsigned long long said = ZSTD_getFrameContentSize(stored.data(), stored.size());
  if (said == ZSTD_CONTENTSIZE_ERROR || ZSTD_findFrameCompressedSize(stored.data(), stored.size()) != stored.size())
    return Damaged("is not one zstd frame");
  if (said != size) return Damaged("does not have the size that the manifest says");
  std::string bytes(size, '\0');
  const size_t got = ZSTD_decompress(bytes.data(), bytes.size(), stored.data(), stored.size());
  if (ZSTD_isError(got)) return Damaged(fmt::format("cannot be unpacked: {}", ZSTD_getErrorName(got)));
  if (got != size) return Damaged("is shorter than the manifest says");
  return bytes;
}

}  // namespace hone
