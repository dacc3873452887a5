// A store in plain memory: for a cache without a directory, for what the disk does not take at the moment, for tests.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "cache/store.h"

namespace hone {

class MemoryStore : public Store {
 public:
  // Put or deleted here; nullopt: this key was never written. Tells a deletion that covers lower layers from absence.
  struct Entry {
    std::optional<std::string> value;  // nullopt: deleted
  };
  std::optional<Entry> Find(Family family, std::string_view key) const;

  StoreBatch Copy() const;  // everything as one batch, deletions too
  void Clear();
  uint64_t bytes() const;

  Result<std::optional<std::string>> Get(Family family, std::string_view key) const override;
  Result<void> Write(const StoreBatch& batch, SyncMode sync) override;
  std::unique_ptr<StoreIterator> Iterate(Family family) const override;  // copies the family
  Result<void> SyncLog() override { return {}; }
  Result<void> Flush() override { return {}; }
  Result<void> Compact(Family, double) override { return {}; }
  Result<MendedFiles> Mend() override { return MendedFiles{}; }
  bool failed() const override { return false; }
  Result<void> CatchUp() override { return {}; }
  FamilySize SizeOf(Family family) const override;
  uint64_t MemoryUsage() const override { return bytes(); }
  bool writable() const override { return true; }

 private:
  using Entries = std::map<std::string, std::optional<std::string>, std::less<>>;

  mutable Mutex mutex_;
  std::array<Entries, kFamilies> families_ HONE_GUARDED_BY(mutex_);
  uint64_t bytes_ HONE_GUARDED_BY(mutex_) = 0;
};

}  // namespace hone
