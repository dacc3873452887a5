// The manifest's byte form. Grammar: docs/record_format.md.
#include "ir/manifest.h"

#include <limits>

#include "base/bytes.h"
#include "base/envelope.h"
#include "ir/graph/dtype_traits.h"

namespace hone {
namespace {

constexpr size_t kTextLimit = 1 << 20;   // the kernel's canonical text
constexpr size_t kShortLimit = 1 << 12;  // target, names, layout ids
constexpr size_t kOperandLimit = 1 << 10;
constexpr size_t kRankLimit = 64;
constexpr int64_t kBytesLimit = 1ll << 40;  // alignment, packed bytes, workspace
constexpr int32_t kSizesLimit = 1 << 10;    // dynamic sizes

// An operand's flags.
constexpr uint8_t kIsOutput = 1, kIsConst = 2;

void WriteDim(ByteWriter& out, const ManifestDim& dim) {
  out.SignedVarint(dim.lo);
  out.SignedVarint(dim.hi);
  out.SignedVarint(dim.size_index);
}

Result<ManifestDim> ReadDim(ByteReader& in, size_t dynamic_sizes) {
  ManifestDim dim;
  dim.lo = HONE_TRY(in.SignedVarint());
  dim.hi = HONE_TRY(in.SignedVarint());
  int64_t index = HONE_TRY(in.SignedVarint());
  bool constant = index == -1 && dim.lo == dim.hi;
  bool dynamic = index >= 0 && index < static_cast<int64_t>(dynamic_sizes);
  if (dim.lo < 0 || dim.lo > dim.hi || !(constant || dynamic))
    return Error{ErrorKind::kCorrupt, "a dimension is neither constant nor one of the dynamic sizes", ""};
  dim.size_index = static_cast<int32_t>(index);
  return dim;
}

// 0 … kBytesLimit
Result<int64_t> ReadBytes(ByteReader& in) {
  return static_cast<int64_t>(HONE_TRY(in.Count(static_cast<uint64_t>(kBytesLimit), 0)));
}

void WriteOperand(ByteWriter& out, const ManifestOperand& operand) {
  out.String(operand.name);
  out.U8(static_cast<uint8_t>(operand.dtype));
  out.U8(static_cast<uint8_t>((operand.is_output ? kIsOutput : 0) | (operand.is_const ? kIsConst : 0)));
  out.Varint(operand.shape.size());
  for (const ManifestDim& dim : operand.shape) WriteDim(out, dim);
  out.Varint(static_cast<uint64_t>(operand.alignment));
  out.Varint(static_cast<uint64_t>(operand.packed_bytes));
  out.String(operand.packed_layout);
}

Result<ManifestOperand> ReadOperand(ByteReader& in, size_t dynamic_sizes) {
  ManifestOperand operand;
  operand.name = HONE_TRY(in.String(kShortLimit));
  operand.dtype = static_cast<DType>(HONE_TRY(in.U8()));
  if (!TraitsOf(operand.dtype).is_computed)
    return Error{ErrorKind::kCorrupt, "an element type that kernels do not have", operand.name};
  uint8_t flags = HONE_TRY(in.Enumerator<uint8_t>(0, kIsOutput | kIsConst));
  operand.is_output = (flags & kIsOutput) != 0;
  operand.is_const = (flags & kIsConst) != 0;
  operand.shape.resize(HONE_TRY(in.Count(kRankLimit, 3)));
  for (ManifestDim& dim : operand.shape) dim = HONE_TRY(ReadDim(in, dynamic_sizes));
  operand.alignment = HONE_TRY(ReadBytes(in));
  if (operand.alignment == 0 || (operand.alignment & (operand.alignment - 1)) != 0)
    return Error{ErrorKind::kCorrupt, "an alignment is not a power of two", operand.name};
  operand.packed_bytes = HONE_TRY(ReadBytes(in));
  operand.packed_layout = HONE_TRY(in.String(kShortLimit));
  if ((operand.packed_bytes > 0) != !operand.packed_layout.empty())
    return Error{ErrorKind::kCorrupt, "packed bytes and layout go together", operand.name};
  return operand;
}

}  // namespace

std::string EncodeManifest(const Manifest& manifest) {
  ByteWriter out;
  out.String(manifest.kernel);
  out.String(manifest.target);
  out.Varint(manifest.dynamic_sizes.size());
  for (const std::string& name : manifest.dynamic_sizes) out.String(name);
  out.Varint(manifest.operands.size());
  for (const ManifestOperand& operand : manifest.operands) WriteOperand(out, operand);
  out.Varint(static_cast<uint64_t>(manifest.workspace_common));
  out.Varint(static_cast<uint64_t>(manifest.workspace_per_worker));
  out.Varint(static_cast<uint64_t>(manifest.launches));
  out.U8(static_cast<uint8_t>(manifest.accuracy));
  out.F64(manifest.flops);
  return Seal(ValueType::kManifest, Manifest::kVersion, out.view());
}

Result<Manifest> DecodeManifest(std::span<const std::byte> bytes) {
  ByteReader in(HONE_TRY(Unseal(ValueType::kManifest, Manifest::kVersion, AsText(bytes))));
  Manifest manifest;
  manifest.kernel = HONE_TRY(in.String(kTextLimit));
  manifest.target = HONE_TRY(in.String(kShortLimit));
  manifest.dynamic_sizes.resize(HONE_TRY(in.Count(kSizesLimit)));
  for (std::string& name : manifest.dynamic_sizes) name = HONE_TRY(in.String(kShortLimit));
  manifest.operands.resize(HONE_TRY(in.Count(kOperandLimit, 7)));
  for (ManifestOperand& operand : manifest.operands) operand = HONE_TRY(ReadOperand(in, manifest.dynamic_sizes.size()));
  manifest.workspace_common = HONE_TRY(ReadBytes(in));
  manifest.workspace_per_worker = HONE_TRY(ReadBytes(in));
  if (manifest.workspace_per_worker % 64 != 0)
    return Error{ErrorKind::kCorrupt, "a worker's workspace is not a multiple of 64 bytes", ""};
  manifest.launches = static_cast<int32_t>(HONE_TRY(in.Count(std::numeric_limits<int32_t>::max(), 0)));
  manifest.accuracy = HONE_TRY(in.Enumerator(Accuracy::kStrict, Accuracy::kFast));
  manifest.flops = HONE_TRY(in.F64());
  HONE_TRY(in.Finish());
  return manifest;
}

}  // namespace hone
