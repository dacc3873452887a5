// RocksDB's log format, which its write-ahead logs and its MANIFEST have. Its own reader gives up at damage what lies
// after it, in the block or in the file; this one loses the record that was hit, or not even that.
//
//   log      ::= block*                                  32 KiB each; the last one ends where the file does
//   block    ::= fragment* zeros                         no fragment begins in a block's last six bytes
//   fragment ::= crc:u32 length:u16 kind:u8 bytes        kind: 1 a whole record, 2 its first, 3 a middle, 4 its last
//   part
//
// crc: CRC-32C of kind and bytes, masked: turned right by 15 bits, plus 0xa282ead8. It does not cover the length.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

struct LogContents {
  std::vector<std::string> records;  // in order, sound or set right
  uint64_t mended = 0;               // fragments in which one flipped bit was set right
  uint64_t damaged = 0;              // stretches that could not be read: at least one record each
  bool torn = false;                 // ends within a record, or in zeros, as a crash leaves it: no damage
  bool foreign = false;              // has sound fragments of other kinds, which this reader does not know
  bool sound() const { return mended == 0 && damaged == 0 && !foreign; }
};

// Whatever the bytes, something is read of them.
LogContents ReadLog(std::string_view file);

// A file that has these records.
std::string WriteLog(const std::vector<std::string>& records);

}  // namespace hone
