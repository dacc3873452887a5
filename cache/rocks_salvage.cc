// Saves what can be read of a damaged database into a new one.
//
// Three ways, from exact to rough. Copying reads through the damaged database itself, opened leniently, and steps over
// unreadable blocks: the contents are exact but for the gaps. When its list of files (MANIFEST) or whole tables cannot
// be opened, RocksDB's repair rebuilds the list from the tables that can; it knows nothing of blob files, so artifacts
// are given up and compiled again. Tables that the repair refuses for a damaged block are read on their own; entries
// that are not there yet are added.
#include <fmt/format.h>
#include <rocksdb/sst_file_reader.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
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

class Salvager {
 public:
  Salvager(std::string from, Store& to, rocksdb::Env* env) : from_(std::move(from)), to_(to), env_(env) {}

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
    Result<std::unique_ptr<Store>> source = OpenRocksStore(Lenient());
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

Result<SalvageReport> SalvageRocksStore(const std::string& from, const std::string& to, rocksdb::Env* env) {
  RocksOptions fresh;
  fresh.path = to;
  fresh.env = env;
  std::unique_ptr<Store> target = HONE_TRY(OpenRocksStore(fresh));
  SalvageReport report = HONE_TRY(Salvager(from, *target, env).Run());
  HONE_TRY(target->Flush());
  return report;
}

}  // namespace hone
