// The byte form of devices' artifacts. Grammar: docs/record_format.md.
#include "ir/device_artifact.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/cubin_check.h"
#include "ir/graph/dtype_traits.h"

namespace hone {
namespace {

// artifact ::= "honedev" version:u8 manifest:string language:string sources:(count string*)
//              buffers:(count (bytes:varint operand:svarint is_written:bool)*)
//              launches:(count launch*)
// launch   ::= entry:string source:varint packs:bool grid:3×varint block:3×varint shared:varint buffers:(count varint*)
constexpr std::string_view kMagic = "honedev";
constexpr uint8_t kVersion = 1;
constexpr size_t kSourceLimit = size_t{16} << 20;
constexpr size_t kNameLimit = 256;
constexpr uint64_t kMostSources = 256, kMostBuffers = 1024, kMostLaunches = 1024;
constexpr int64_t kMostBytes = int64_t{1} << 40;
constexpr int64_t kMostBlocks = int64_t{1} << 40, kMostThreads = 4096;

Error Corrupt(std::string message) { return {ErrorKind::kCorrupt, std::move(message), "artifact"}; }

Result<int64_t> Number(ByteReader& in, int64_t least, int64_t most, const char* what) {
  const uint64_t value = HONE_TRY(in.Varint());
  if (value < static_cast<uint64_t>(least) || value > static_cast<uint64_t>(most))
    return Corrupt(fmt::format("{} is {}, not {} to {}", what, value, least, most));
  return static_cast<int64_t>(value);
}

bool IsName(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !text.empty() && letter(text[0]) &&
         std::ranges::all_of(text, [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

// Of a manifest whose sizes are constants. −1: they are not, or it is too large.
int64_t OperandBytes(const ManifestOperand& operand) {
  int64_t bytes = TraitsOf(operand.dtype).bytes;
  for (const ManifestDim& dim : operand.shape)
    if (dim.lo != dim.hi || __builtin_mul_overflow(bytes, dim.hi, &bytes) || bytes > kMostBytes) return -1;
  return bytes;
}

Result<DeviceLaunch> ReadLaunch(ByteReader& in, const DeviceArtifact& artifact) {
  DeviceLaunch launch;
  launch.entry = HONE_TRY(in.String(kNameLimit));
  if (!IsName(launch.entry)) return Corrupt("the name of a launch is no function's");
  launch.source = static_cast<int32_t>(
      HONE_TRY(Number(in, 0, static_cast<int64_t>(artifact.sources.size()) - 1, "the source of a launch")));
  launch.packs = HONE_TRY(in.Bool());
  for (int64_t& blocks : launch.grid) blocks = HONE_TRY(Number(in, 1, kMostBlocks, "a number of blocks"));
  int64_t threads = 1;
  for (int64_t& along : launch.block) threads *= along = HONE_TRY(Number(in, 1, kMostThreads, "a number of threads"));
  if (threads > kMostThreads) return Corrupt(fmt::format("a block has {} threads", threads));
  launch.shared_bytes = HONE_TRY(Number(in, 0, kMostBytes, "storage of a block"));
  launch.buffers.resize(HONE_TRY(in.Count(kMostBuffers)));
  for (int32_t& buffer : launch.buffers)
    buffer = static_cast<int32_t>(
        HONE_TRY(Number(in, 0, static_cast<int64_t>(artifact.buffers.size()) - 1, "a buffer of a launch")));
  return launch;
}

Result<void> CheckBuffers(const DeviceArtifact& artifact) {
  std::vector<bool> has_buffer(artifact.manifest.operands.size());
  for (const DeviceBuffer& buffer : artifact.buffers) {
    if (buffer.operand < 0) continue;
    const auto index = static_cast<size_t>(buffer.operand);
    const ManifestOperand& operand = artifact.manifest.operands[index];
    if (has_buffer[index]) return Corrupt(fmt::format("{} has two buffers", operand.name));
    has_buffer[index] = true;
    if (buffer.bytes != OperandBytes(operand))
      return Corrupt(fmt::format("the buffer of {} has {} bytes", operand.name, buffer.bytes));
    if (buffer.is_written != operand.is_output)
      return Corrupt(fmt::format("{} is {}", operand.name, buffer.is_written ? "written" : "not written"));
  }
  const auto missing = std::ranges::find(has_buffer, false);
  if (missing == has_buffer.end()) return {};
  return Corrupt(fmt::format("{} has no buffer",
                             artifact.manifest.operands[static_cast<size_t>(missing - has_buffer.begin())].name));
}

}  // namespace

std::string EncodeDeviceArtifact(const DeviceArtifact& artifact) {
  ByteWriter out;
  out.Raw(kMagic);
  out.U8(kVersion);
  out.String(EncodeManifest(artifact.manifest));
  out.String(artifact.language);
  out.Varint(artifact.sources.size());
  for (const std::string& source : artifact.sources) out.String(source);
  out.Varint(artifact.buffers.size());
  for (const DeviceBuffer& buffer : artifact.buffers) {
    out.Varint(static_cast<uint64_t>(buffer.bytes));
    out.SignedVarint(buffer.operand);
    out.Bool(buffer.is_written);
  }
  out.Varint(artifact.launches.size());
  for (const DeviceLaunch& launch : artifact.launches) {
    out.String(launch.entry);
    out.Varint(static_cast<uint64_t>(launch.source));
    out.Bool(launch.packs);
    for (int64_t blocks : launch.grid) out.Varint(static_cast<uint64_t>(blocks));
    for (int64_t threads : launch.block) out.Varint(static_cast<uint64_t>(threads));
    out.Varint(static_cast<uint64_t>(launch.shared_bytes));
    out.Varint(launch.buffers.size());
    for (int32_t buffer : launch.buffers) out.Varint(static_cast<uint64_t>(buffer));
  }
  return out.Take();
}

Result<DeviceArtifact> DecodeDeviceArtifact(std::span<const std::byte> bytes, uint64_t size) {
  if (size != 0 && size != bytes.size())
    return Error{ErrorKind::kInvalid, fmt::format("{} bytes, {} were expected", bytes.size(), size), "artifact"};
  const std::string_view text = AsText(bytes);
  if (!text.starts_with(kMagic)) return Corrupt("no artifact of a device");
  ByteReader in(text.substr(kMagic.size()));
  if (const uint8_t version = HONE_TRY(in.U8()); version != kVersion)
    return Error{ErrorKind::kUnsupported,
                 fmt::format("version {} of devices' artifacts, this hone reads {}", version, kVersion), "artifact"};
  DeviceArtifact artifact;
  artifact.manifest = HONE_TRY(DecodeManifest(AsBytes(HONE_TRY(in.String(size_t{8} << 20)))));
  artifact.language = HONE_TRY(in.String(kNameLimit));
  artifact.sources.resize(HONE_TRY(in.Count(kMostSources)));
  for (std::string& source : artifact.sources) {
    source = HONE_TRY(in.String(kSourceLimit));
    if (artifact.language == kSpirv) {
      if (source.empty() || source.size() % 4 != 0) return Corrupt("a SPIR-V module that is no row of words");
    } else if (artifact.language == kCubin) {
      HONE_TRY(CheckCubin(AsBytes(source)));
    } else if (source.find('\0') != std::string::npos) {
      return Corrupt("a source with a zero in it");  // compilers take texts that end at one
    }
  }
  if (artifact.sources.empty()) return Corrupt("no source");
  artifact.buffers.resize(HONE_TRY(in.Count(kMostBuffers)));
  for (DeviceBuffer& buffer : artifact.buffers) {
    buffer.bytes = HONE_TRY(Number(in, 0, kMostBytes, "the size of a buffer"));
    const int64_t operand = HONE_TRY(in.SignedVarint());
    if (operand < -1 || operand >= static_cast<int64_t>(artifact.manifest.operands.size()))
      return Corrupt("a buffer of an operand that is not there");
    buffer.operand = static_cast<int32_t>(operand);
    buffer.is_written = HONE_TRY(in.Bool());
  }
  HONE_TRY(CheckBuffers(artifact));
  const uint64_t launches = HONE_TRY(in.Count(kMostLaunches));
  for (uint64_t i = 0; i < launches; ++i) {
    artifact.launches.push_back(HONE_TRY(ReadLaunch(in, artifact)));
    if (i > 0 && artifact.launches[i].packs && !artifact.launches[i - 1].packs)
      return Corrupt("a launch packs after one that does not");
  }
  HONE_TRY(in.Finish());
  return artifact;
}

}  // namespace hone
