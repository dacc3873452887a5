#include "cache/memory_store.h"

#include <utility>
#include <vector>

namespace hone {
namespace {

class CopyIterator : public StoreIterator {
 public:
  explicit CopyIterator(std::vector<std::pair<std::string, std::string>> entries) : entries_(std::move(entries)) {}
  void Seek(std::string_view key) override {
    position_ = 0;
    size_t end = entries_.size();
    while (position_ < end) {
      size_t middle = position_ + (end - position_) / 2;
      if (entries_[middle].first < key)
        position_ = middle + 1;
      else
        end = middle;
    }
  }
  void Next() override { ++position_; }
  bool Valid() const override { return position_ < entries_.size(); }
  std::string_view key() const override { return entries_[position_].first; }
  std::string_view value() const override { return entries_[position_].second; }
  Result<void> status() const override { return {}; }

 private:
  std::vector<std::pair<std::string, std::string>> entries_;
  size_t position_ = 0;
};

uint64_t SizeOfEntry(std::string_view key, const std::optional<std::string>& value) {
  return key.size() + (value ? value->size() : 0) + 96;  // a map node and two strings
}

}  // namespace

std::optional<MemoryStore::Entry> MemoryStore::Find(Family family, std::string_view key) const {
  MutexLock lock(mutex_);
  const Entries& entries = families_[static_cast<size_t>(family)];
  auto found = entries.find(key);
  if (found == entries.end()) return std::nullopt;
  return Entry{found->second};
}

StoreBatch MemoryStore::Copy() const {
  MutexLock lock(mutex_);
  StoreBatch batch;
  for (size_t i = 0; i < kFamilies; ++i)
    for (const auto& [key, value] : families_[i]) {
      if (value)
        batch.Put(static_cast<Family>(i), key, *value);
      else
        batch.Delete(static_cast<Family>(i), key);
    }
  return batch;
}

void MemoryStore::Clear() {
  MutexLock lock(mutex_);
  for (Entries& entries : families_) entries.clear();
  bytes_ = 0;
}

uint64_t MemoryStore::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

Result<std::optional<std::string>> MemoryStore::Get(Family family, std::string_view key) const {
  std::optional<Entry> entry = Find(family, key);
  return entry ? std::move(entry->value) : std::nullopt;
}

Result<void> MemoryStore::Write(const StoreBatch& batch, SyncMode) {
  MutexLock lock(mutex_);
  for (const StoreBatch::Operation& operation : batch.operations()) {
    Entries& entries = families_[static_cast<size_t>(operation.family)];
    auto [entry, inserted] = entries.try_emplace(operation.key);
    if (!inserted) bytes_ -= SizeOfEntry(entry->first, entry->second);
    entry->second = operation.value;
    bytes_ += SizeOfEntry(entry->first, entry->second);
  }
  return {};
}

std::unique_ptr<StoreIterator> MemoryStore::Iterate(Family family) const {
  MutexLock lock(mutex_);
  std::vector<std::pair<std::string, std::string>> copies;
  for (const auto& [key, value] : families_[static_cast<size_t>(family)])
    if (value) copies.emplace_back(key, *value);
  return std::make_unique<CopyIterator>(std::move(copies));
}

FamilySize MemoryStore::SizeOf(Family family) const {
  MutexLock lock(mutex_);
  FamilySize size;
  for (const auto& [key, value] : families_[static_cast<size_t>(family)]) {
    size.entries += value ? 1 : 0;
    size.bytes += SizeOfEntry(key, value);
  }
  return size;
}

}  // namespace hone
