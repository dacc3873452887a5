// Sets single flipped bits in tables and blob files right. RocksDB writes down a CRC-32C of each whole file in its
// MANIFEST, which says where the bit is, be it in an index, a dictionary or a header, without which the rest of the
// file could not be read.
#include <rocksdb/metadata.h>
#include <rocksdb/sst_file_reader.h>

#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "cache/mend.h"
#include "cache/rocks_options.h"

namespace hone {
namespace {

struct CheckedFile {
  std::string path;
  uint32_t crc;
  bool is_table;
};

// RocksDB keeps it as four bytes, the highest first. nullopt: an older hone's file, without one.
std::optional<uint32_t> CrcIn(const std::string& checksum) {
  if (checksum.size() != 4) return std::nullopt;
  uint32_t crc = 0;
  for (char byte : checksum) crc = crc << 8 | static_cast<uint8_t>(byte);
  return crc;
}

std::string Joined(const std::string& directory, const std::string& name) {
  return directory + (name.starts_with('/') ? "" : "/") + name;
}

std::vector<CheckedFile> LiveFiles(rocksdb::DB& db) {
  std::vector<CheckedFile> files;
  std::vector<rocksdb::ColumnFamilyMetaData> families;
  db.GetAllColumnFamilyMetaData(&families);
  for (const rocksdb::ColumnFamilyMetaData& family : families) {
    for (const rocksdb::LevelMetaData& level : family.levels)
      for (const rocksdb::SstFileMetaData& table : level.files)
        if (std::optional<uint32_t> crc = CrcIn(table.file_checksum))
          files.push_back({Joined(db.GetName(), table.relative_filename), *crc, true});
    for (const rocksdb::BlobMetaData& blob : family.blob_files)
      if (std::optional<uint32_t> crc = CrcIn(blob.checksum_value))
        files.push_back({Joined(db.GetName(), blob.blob_file_name), *crc, false});
  }
  return files;
}

}  // namespace

MendedFiles MendRocksFiles(rocksdb::DB& db, const rocksdb::Options& table_options) {
  MendedFiles result;
  for (const CheckedFile& file : LiveFiles(db)) {
    Result<FileState> state = MendFile(file.path, file.crc);
    if (state && *state == FileState::kSound) continue;
    bool mended = state && *state == FileState::kMended;
    if (mended && file.is_table) {
      // Other damage looks like one flipped bit now and then; the blocks' own checksums know.
      rocksdb::SstFileReader reader(table_options);
      rocksdb::Status sound = reader.Open(file.path);
      mended = sound.ok() && reader.VerifyChecksum().ok();
    }
    ++(mended ? result.mended : result.damaged);
    LogWarn(mended ? "cache_mended" : "cache_damaged",
            {{"file", file.path}, {"error", state ? "" : state.error().Text()}});
  }
  return result;
}

}  // namespace hone
