// Saves what can be read of a damaged database into a new one.
//
// Three ways, from exact to rough. Copying reads through the damaged database itself, opened leniently, and steps over
// unreadable blocks: the contents are exact but for the gaps. When its list of files (MANIFEST) or whole tables cannot
// be opened, RocksDB's repair rebuilds the list from the tables that can; it knows nothing of blob files, so artifacts
// are given up and compiled again. Tables that the repair refuses for a damaged block are read on their own; entries
// that are not there yet are added. What the write-ahead logs hold is newer than any table and comes last, read by
// cache/log_file: the repair drops what a log has for families that have no table yet.
#include <fmt/format.h>
#include <rocksdb/sst_file_reader.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "cache/log_file.h"
#include "cache/rocks_options.h"
#include "cache/rocks_store.h"
#include "cache/scan.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> FilesWith(const std::string& directory, std::string_view extension) {
  std::vector<std::string> paths;
  for (const std::string& name : ListDirectory(directory).value_or(std::vector<std::string>()))
    if (name.ends_with(extension)) paths.push_back(directory + "/" + name);
  return paths;
}

std::optional<Family> FamilyNamed(std::string_view name) {
  for (size_t i = 0; i < kFamilies; ++i)
    if (kFamilyNames[i] == name) return static_cast<Family>(i);
  return std::nullopt;
}

class TableIterator : public StoreIterator {
 public:
  explicit TableIterator(rocksdb::Iterator* iterator) : iterator_(iterator) {}
  void Seek(std::string_view key) override { iterator_->Seek(rocksdb::Slice(key.data(), key.size())); }
  void Next() override { iterator_->Next(); }
  bool Valid() const override { return iterator_->Valid(); }
  std::string_view key() const override { return iterator_->key().ToStringView(); }
  std::string_view value() const override { return iterator_->value().ToStringView(); }
  Result<void> status() const override { return FromStatus(iterator_->status(), "read a table"); }

 private:
  std::unique_ptr<rocksdb::Iterator> iterator_;
};

// A batch of the log, as one of ours. RocksDB numbers families in the order in which they were made: "default" is 0.
class BatchReader : public rocksdb::WriteBatch::Handler {
 public:
  explicit BatchReader(const std::set<Family>& wanted) : wanted_(wanted) {}
  StoreBatch Take() { return std::move(batch_); }

  rocksdb::Status PutCF(uint32_t number, const rocksdb::Slice& key, const rocksdb::Slice& value) override {
    if (std::optional<Family> family = Wanted(number)) batch_.Put(*family, key.ToString(), value.ToString());
    return rocksdb::Status::OK();
  }
  rocksdb::Status DeleteCF(uint32_t number, const rocksdb::Slice& key) override {
    if (std::optional<Family> family = Wanted(number)) batch_.Delete(*family, key.ToString());
    return rocksdb::Status::OK();
  }
  void LogData(const rocksdb::Slice&) override {}

 private:
  std::optional<Family> Wanted(uint32_t number) const {
    if (number == 0 || number > kFamilies) return std::nullopt;
    Family family = static_cast<Family>(number - 1);
    return wanted_.contains(family) ? std::optional(family) : std::nullopt;
  }

  const std::set<Family>& wanted_;
  StoreBatch batch_;
};

class Salvager {
 public:
  Salvager(std::string from, Store& to, bool has_manifest, rocksdb::Env* env)
      : from_(std::move(from)), to_(to), has_manifest_(has_manifest), env_(env) {}

  Result<SalvageReport> Run() {
    std::set<Family> left = HONE_TRY(CopyExactly());
    if (!left.empty()) {
      if (left.erase(Family::kArtifacts) > 0) report_.artifacts_lost = true;
      HONE_TRY(RepairAndCopy(left));
    }
    return report_;
  }

 private:
  RocksOptions Lenient() const {
    RocksOptions options;
    options.path = from_;
    options.mode = RocksMode::kReadOnly;
    options.lenient = true;
    options.env = env_;
    return options;
  }

  rocksdb::Options TableOptions() const {
    RocksSettings settings = MakeRocksSettings(Lenient());
    return rocksdb::Options(settings.db, settings.records);
  }

  // Families that could not be copied because one of their tables cannot be opened, or all if nothing can.
  Result<std::set<Family>> CopyExactly() {
    std::set<Family> left;
    Result<std::unique_ptr<Store>> source = Error{ErrorKind::kCorrupt, "the list of files is damaged or gone", from_};
    if (has_manifest_) source = OpenRocksStore(Lenient());
    if (!source) {
      LogWarn("cache_salvage", {{"step", "open"}, {"error", source.error().Text()}});
      for (size_t i = 0; i < kFamilies; ++i) left.insert(static_cast<Family>(i));
      return left;
    }
    std::set<Family> broken = FamiliesWithUnreadableTables();
    for (size_t i = 0; i < kFamilies; ++i) {
      Family family = static_cast<Family>(i);
      // Of artifacts, what the readable tables name is better than nothing.
      if (broken.contains(family) && family != Family::kArtifacts)
        left.insert(family);
      else
        HONE_TRY(CopyReadable(**source, to_, family, report_));
    }
    return left;
  }

  std::set<Family> FamiliesWithUnreadableTables() {
    std::set<Family> broken;
    RocksSettings settings = MakeRocksSettings(Lenient());
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* raw = nullptr;
    rocksdb::Status status =
        rocksdb::DB::OpenForReadOnly(settings.db, from_, DescribeFamilies(settings), &handles, &raw);
    if (!status.ok()) return broken;
    std::unique_ptr<rocksdb::DB> db(raw);
    std::vector<rocksdb::LiveFileMetaData> files;
    db->GetLiveFilesMetaData(&files);
    for (const rocksdb::LiveFileMetaData& file : files) {
      rocksdb::SstFileReader reader(TableOptions());
      rocksdb::Status opened = reader.Open(from_ + "/" + file.relative_filename);
      if (opened.ok()) continue;
      LogWarn("cache_salvage", {{"step", "table"}, {"file", file.relative_filename}, {"error", opened.ToString()}});
      ++report_.unreadable_files;
      if (auto family = FamilyNamed(file.column_family_name)) broken.insert(*family);
    }
    for (rocksdb::ColumnFamilyHandle* handle : handles) db->DestroyColumnFamilyHandle(handle);
    return broken;
  }

  Result<void> RepairAndCopy(const std::set<Family>& families) {
    SetArtifactsAside();
    const std::vector<std::string> logs = SetLogsAside();
    RocksSettings settings = MakeRocksSettings(Lenient());
    settings.artifacts = settings.records;  // the repair does not know blob files
    rocksdb::Status repaired = rocksdb::RepairDB(from_, settings.db, DescribeFamilies(settings), settings.small);
    Result<std::unique_ptr<Store>> source = Error{ErrorKind::kCorrupt, repaired.ToString(), from_};
    if (repaired.ok()) source = OpenRocksStore(Lenient());
    if (source) {
      for (Family family : families) HONE_TRY(CopyReadable(**source, to_, family, report_));
    } else {
      LogWarn("cache_salvage", {{"step", "repair"}, {"error", source.error().Text()}});
    }
    std::vector<std::string> tables = FilesWith(from_ + "/lost", ".sst");
    if (!source) tables = FilesWith(from_, ".sst");
    for (const std::string& table : tables) HONE_TRY(CopyTable(table, families));
    for (const std::string& log : logs) HONE_TRY(ReplayLog(log, families));
    return {};
  }

  // Where they are then, the oldest first: their names are numbers of six digits or more.
  std::vector<std::string> SetLogsAside() {
    std::string aside = from_ + "/logs";
    std::error_code ignored;
    fs::create_directory(aside, ignored);
    for (const std::string& path : FilesWith(from_, ".log"))
      fs::rename(path, aside / fs::path(path).filename(), ignored);
    std::vector<std::string> logs = FilesWith(aside, ".log");
    std::ranges::sort(logs, [](const std::string& a, const std::string& b) {
      return a.size() != b.size() ? a.size() < b.size() : a < b;
    });
    return logs;
  }

  Result<void> ReplayLog(const std::string& path, const std::set<Family>& families) {
    std::set<Family> wanted = families;
    wanted.insert(Family::kArtifacts);  // code that is in no blob file yet
    for (std::string& record : ReadLog(HONE_TRY(ReadFile(path, size_t{1} << 30))).records) {
      BatchReader reader(wanted);
      rocksdb::WriteBatch batch(std::move(record));
      if (rocksdb::Status read = batch.Iterate(&reader); !read.ok()) {
        LogWarn("cache_salvage", {{"step", "log"}, {"file", path}, {"error", read.ToString()}});
        ++report_.lost_writes;
      }
      StoreBatch writes = reader.Take();
      report_.copied += writes.operations().size();
      HONE_TRY(to_.Write(writes, SyncMode::kNoSync));
    }
    return {};
  }

  void SetArtifactsAside() {
    std::string aside = from_ + "/artifacts";
    std::error_code ignored;
    fs::create_directory(aside, ignored);
    std::vector<std::string> moved = FilesWith(from_, ".blob");
    for (const std::string& table : FilesWith(from_, ".sst")) {
      rocksdb::SstFileReader reader(TableOptions());
      if (!reader.Open(table).ok()) continue;
      if (reader.GetTableProperties()->column_family_name == NameOf(Family::kArtifacts)) moved.push_back(table);
    }
    for (const std::string& path : moved) fs::rename(path, aside / fs::path(path).filename(), ignored);
  }

  Result<void> CopyTable(const std::string& path, const std::set<Family>& families) {
    rocksdb::SstFileReader reader(TableOptions());
    if (!reader.Open(path).ok()) {
      ++report_.unreadable_files;
      return {};
    }
    std::optional<Family> family = FamilyNamed(reader.GetTableProperties()->column_family_name);
    if (!family || !families.contains(*family)) return {};
    auto source = [&] { return std::make_unique<TableIterator>(reader.NewIterator(rocksdb::ReadOptions())); };
    ResilientIterator entries(source, "");
    return CopyEntries(entries, to_, *family, /*keep_present=*/true, report_);
  }

  const std::string from_;
  Store& to_;
  const bool has_manifest_;
  rocksdb::Env* const env_;
  SalvageReport report_;
};

}  // namespace

bool RocksFilesExist(const std::string& path) {
  return !FilesWith(path, ".sst").empty() || !FilesWith(path, ".log").empty() || !FilesWith(path, ".blob").empty();
}

bool RocksIsComplete(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path + "/CURRENT", ignored);
}

Result<SalvageReport> SalvageRocksStore(const std::string& from, const std::string& to, bool has_manifest,
                                        rocksdb::Env* env) {
  RocksOptions fresh;
  fresh.path = to;
  fresh.env = env;
  std::unique_ptr<Store> target = HONE_TRY(OpenRocksStore(fresh));
  SalvageReport report = HONE_TRY(Salvager(from, *target, has_manifest, env).Run());
  HONE_TRY(target->Flush());
  return report;
}

}  // namespace hone
