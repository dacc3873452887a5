// The wrapping of everything hone stores: magic, version, type, length, checksum. Grammar: docs/record_format.md.
//
//   value ::= "hone" version:u8 type:u8 length:varint body checksum:8
//
// The checksum is BLAKE2b-64 over all that comes before it. The envelope is the same in every version of every type, so
// damage is told apart from novelty.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hone {

// What an envelope holds. Stored: never reuse a number.
enum class ValueType : uint8_t {
  kRecord = 1,
  kKernelUse = 2,
  kClass = 3,
  kArtifact = 4,
  kTrial = 5,
  kModel = 6,
  kMeta = 7,
  kQuarantined = 8,
  kHidden = 9,  // in a record's place: the user removed what the system layer has
  kManifest = 10,
  kMarked = 11,  // another value, with the mark of the cache that it is of
};

std::string Seal(ValueType type, uint8_t version, std::string_view body);

// The body, as a view into `value`. kCorrupt: damaged, or of another type. kUnsupported: sound, but of a version above
// `newest`: a newer hone wrote it, and the message says so.
Result<std::string_view> Unseal(ValueType type, uint8_t newest, std::string_view value);

// The same without looking at the checksum, for callers that check the body by a digest of their own.
Result<std::string_view> UnsealUnchecked(ValueType type, uint8_t newest, std::string_view value);

// The version of a value that Unseal accepted.
uint8_t SealedVersion(std::string_view value);

// The type of a value whose envelope begins rightly, without checking the rest.
Result<ValueType> SealedType(std::string_view value);

}  // namespace hone
