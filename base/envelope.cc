#include "base/envelope.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/hash.h"

namespace hone {
namespace {

constexpr std::string_view kMagic = "hone";

struct Header {
  uint8_t version;
  uint8_t type;
};

Result<Header> ReadHeader(ByteReader& in) {
  if (HONE_TRY(in.Raw(kMagic.size())) != kMagic)
    return Error{ErrorKind::kCorrupt, "does not begin as a value of hone's", ""};
  uint8_t version = HONE_TRY(in.U8());
  return Header{version, HONE_TRY(in.U8())};
}

Result<std::string_view> Open(ValueType type, uint8_t newest, std::string_view value, bool check) {
  ByteReader in(value);
  Header header = HONE_TRY(ReadHeader(in));
  std::string_view body = HONE_TRY(in.String(value.size()));
  size_t sealed = in.position();
  Digest64 checksum = HONE_TRY(in.Array<sizeof(Digest64)>());
  HONE_TRY(in.Finish());
  if (check && checksum != Hash64(value.substr(0, sealed)))
    return Error{ErrorKind::kCorrupt, "checksum does not match", ""};
  if (header.type != static_cast<uint8_t>(type) || header.version == 0)
    return Error{
        ErrorKind::kCorrupt,
        fmt::format("saw type {} version {}, wanted type {}", header.type, header.version, static_cast<uint8_t>(type)),
        ""};
  if (header.version > newest)
    return Error{ErrorKind::kUnsupported,
                 fmt::format("written by a newer hone (version {}, this one reads up to {}); upgrade hone",
                             header.version, newest),
                 ""};
  return body;
}

}  // namespace

std::string Seal(ValueType type, uint8_t version, std::string_view body) {
  ByteWriter out;
  out.Reserve(kMagic.size() + 2 + 10 + body.size() + sizeof(Digest64));
  out.Raw(kMagic);
  out.U8(version);
  out.U8(static_cast<uint8_t>(type));
  out.String(body);
  Digest64 checksum = Hash64(out.view());
  out.Raw(std::span<const uint8_t>(checksum));
  return out.Take();
}

Result<std::string_view> Unseal(ValueType type, uint8_t newest, std::string_view value) {
  return Open(type, newest, value, true);
}

Result<std::string_view> UnsealUnchecked(ValueType type, uint8_t newest, std::string_view value) {
  return Open(type, newest, value, false);
}

uint8_t SealedVersion(std::string_view value) { return static_cast<uint8_t>(value[kMagic.size()]); }

Result<ValueType> SealedType(std::string_view value) {
  ByteReader in(value);
  return static_cast<ValueType>(HONE_TRY(ReadHeader(in)).type);
}

}  // namespace hone
