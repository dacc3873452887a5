// The rows that list classes and kernels, after damage took them: records say all that is in them but the counts.
#include <gtest/gtest.h>

#include <thread>

#include "cache/keys.h"
#include "cache/rocks_store.h"
#include "cache/schedule_cache.h"
#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "tests/support/sample_records.h"
#include "tests/support/temporary_directory.h"

namespace hone::index_test {
namespace {

class IndexTest : public ::testing::Test {
 protected:
  std::unique_ptr<ScheduleCache> Open() const {
    CacheOptions options;
    options.directory = directory_ / "cache";
    options.flush_interval = std::chrono::milliseconds(10);
    return *ScheduleCache::Open(options);
  }
  NewRecord EntryOf(const std::string& text) const {
    const Canonical canonical = Canonicalize(*ParseKernel(text));
    Record record = SampleRecord(1);
    record.key = MakeCacheKey(canonical, *ParseTarget(kSampleTarget), 2, kSampleCode);
    record.shape = canonical.shape;
    return {record, canonical.class_text, std::nullopt};
  }
  // As damage does that cannot be set right.
  void WriteClass(const Fingerprint& fingerprint, const std::string& value) const {
    RocksOptions options;
    options.path = directory_ / "cache/db";
    StoreBatch batch;
    batch.Put(Family::kKernels, ClassKey(fingerprint), value);
    ASSERT_TRUE((*OpenRocksStore(options))->Write(batch, SyncMode::kSync).has_value());
  }
  static std::string TextOfTheClass(ScheduleCache& cache) {
    const std::vector<ClassSummary> classes = *cache.Classes();
    return classes.size() == 1 ? classes[0].info.class_text : "";
  }

  TemporaryDirectory directory_;
};

TEST_F(IndexTest, AClassHasItsTextAgainFromItsRecords) {
  const NewRecord entry = EntryOf("matmul(M=8,N=16,K=32)");
  ASSERT_FALSE(entry.class_text.empty());
  { ASSERT_TRUE(Open()->Put(entry, Durability::kSynced).has_value()); }
  WriteClass(entry.record.key.class_fingerprint, "damaged");
  std::unique_ptr<ScheduleCache> cache = Open();
  (void)TextOfTheClass(*cache);  // meets it
  for (int i = 0; i < 500 && TextOfTheClass(*cache).empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(TextOfTheClass(*cache), entry.class_text);
}

TEST_F(IndexTest, AClassWithoutATextGetsThatOfItsNextRecord) {
  const NewRecord entry = EntryOf("matmul(M=8,N=16,K=32)"), next = EntryOf("matmul(M=8,N=16,K=64)");
  ASSERT_EQ(entry.class_text, next.class_text);
  { ASSERT_TRUE(Open()->Put(entry, Durability::kSynced).has_value()); }
  WriteClass(entry.record.key.class_fingerprint,
             EncodeClass({entry.record.key.class_fingerprint, entry.record.label, ""}));
  std::unique_ptr<ScheduleCache> cache = Open();
  EXPECT_EQ(TextOfTheClass(*cache), "");
  ASSERT_TRUE(cache->Put(next, Durability::kSynced).has_value());
  EXPECT_EQ(TextOfTheClass(*cache), entry.class_text);
}

}  // namespace
}  // namespace hone::index_test
