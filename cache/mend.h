// Sets right, in a closed or damaged database's own files, what their checksums say how to set right: one flipped bit
// in each record of a log, or in a table or blob file. What cannot be set right in a log is cut out of it and counted.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "cache/salvage.h"

namespace hone {

struct LogsState {
  bool manifest_is_lost = false;  // damaged beyond that, or gone: the database has to be salvaged
};

// Goes through CURRENT, the MANIFEST and the write-ahead logs of a database that nobody has open, and replaces those
// that are damaged; of torn logs, what tore goes. A log that had to be cut is kept in `keep_in` as it was. Adds to
// `report` what was done and lost. kIo, kLimit: a file cannot be read or replaced.
Result<LogsState> MendLogs(const std::string& database, const std::string& keep_in, SalvageReport& report);

enum class FileState : uint8_t { kSound, kMended, kDamaged };

// Compares a whole file with its CRC-32C, and sets one flipped bit right in place, under readers, too. kDamaged: the
// file is as it was. kIo, kNotFound.
Result<FileState> MendFile(const std::string& path, uint32_t crc);

}  // namespace hone
