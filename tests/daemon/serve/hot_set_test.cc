#include "daemon/serve/hot_set.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

HotCodePtr Code(std::string key, size_t bytes, uint8_t fingerprint = 0) {
  auto code = std::make_shared<HotCode>();
  code->key = std::move(key);
  code->fingerprint.bytes[0] = fingerprint;
  code->artifact = *SealedMemfd::Create(std::vector<std::byte>(bytes));
  return code;
}

TEST(HotSet, FindsByRequestAndByKey) {
  HotSet set({1000, 10, 10});
  set.Insert("request", Code("key", 10));
  ASSERT_TRUE(set.Find("request"));
  EXPECT_EQ(set.Find("request")->key, "key");
  EXPECT_TRUE(set.FindCode("key"));
  EXPECT_FALSE(set.Find("other"));
  EXPECT_FALSE(set.FindCode("request"));
}

TEST(HotSet, KnowsWhatWasForgottenSince) {
  HotSet set({1000, 10, 10});
  Fingerprint one, other;
  one.bytes[0] = 1, other.bytes[0] = 2;
  const uint64_t before = set.forgets();
  EXPECT_FALSE(set.ForgotSince(before, one));
  set.Forget(one);
  EXPECT_TRUE(set.ForgotSince(before, one));
  EXPECT_FALSE(set.ForgotSince(before, other));
  EXPECT_FALSE(set.ForgotSince(set.forgets(), one));
  for (int i = 0; i < 5000; ++i) set.Forget(one);
  EXPECT_TRUE(set.ForgotSince(before, other));  // nobody knows
  EXPECT_FALSE(set.ForgotSince(set.forgets() - 10, other));
}

TEST(HotSet, TwoSpellingsShareOneEntry) {
  HotSet set({1000, 10, 10});
  set.Insert("a", Code("key", 10));
  set.Insert("b", set.FindCode("key"));
  EXPECT_EQ(set.entries(), 1u);
  EXPECT_EQ(set.bytes(), 10u);
  EXPECT_EQ(set.Find("a"), set.Find("b"));
}

TEST(HotSet, DropsTheLeastRecentlyUsedWhenBytesRunOut) {
  HotSet set({100, 10, 10});
  set.Insert("a", Code("a", 40));
  set.Insert("b", Code("b", 40));
  ASSERT_TRUE(set.Find("a"));
  set.Insert("c", Code("c", 40));
  EXPECT_TRUE(set.Find("a"));
  EXPECT_FALSE(set.Find("b"));
  EXPECT_TRUE(set.Find("c"));
  EXPECT_EQ(set.bytes(), 80u);
}

TEST(HotSet, KeepsWhatIsLargerThanTheLimitUntilTheNext) {
  HotSet set({100, 10, 10});
  set.Insert("a", Code("a", 400));
  EXPECT_TRUE(set.Find("a"));
  set.Insert("b", Code("b", 4));
  EXPECT_FALSE(set.Find("a"));
  EXPECT_EQ(set.bytes(), 4u);
}

TEST(HotSet, BoundsDescriptorsAndMemo) {
  HotSet set({1 << 20, 3, 5});
  for (int i = 0; i < 20; ++i) set.Insert(std::to_string(i), Code("k" + std::to_string(i), 1));
  EXPECT_EQ(set.entries(), 3u);
  EXPECT_TRUE(set.Find("19"));
  EXPECT_FALSE(set.Find("16"));  // remembered, its code gone
  EXPECT_FALSE(set.Find("1"));
  set.SetLimits({1 << 20, 1, 5});
  EXPECT_EQ(set.entries(), 1u);
}

TEST(HotSet, ReplacingCodeServesTheNewOne) {
  HotSet set({1000, 10, 10});
  set.Insert("a", Code("key", 10));
  set.Insert("a", Code("key", 20));
  EXPECT_EQ(set.Find("a")->artifact.size(), 20u);
  EXPECT_EQ(set.bytes(), 20u);
  EXPECT_EQ(set.entries(), 1u);
}

TEST(HotSet, ForgetsAllCodeOfAKernel) {
  HotSet set({1000, 10, 10});
  set.Insert("a", Code("one", 10, 1));
  set.Insert("b", Code("two", 10, 1));
  set.Insert("c", Code("three", 10, 2));
  Fingerprint fingerprint;
  fingerprint.bytes[0] = 1;
  set.Forget(fingerprint);
  EXPECT_FALSE(set.Find("a"));
  EXPECT_FALSE(set.Find("b"));
  EXPECT_TRUE(set.Find("c"));
}

TEST(HotSet, ReportsUsesOnce) {
  HotSet set({1000, 10, 10});
  set.Insert("a", Code("a", 1));
  set.Find("a")->uses += 3;
  uint64_t sum = 0;
  auto add = [&](const HotCode&, uint64_t uses) { sum += uses; };
  set.TakeUses(add);
  set.TakeUses(add);
  EXPECT_EQ(sum, 3u);
}

TEST(HotSet, RequestsThatDifferHaveDifferentNames) {
  GetRequest a{"k", "", 0, 0, false, false}, b = a, c = a, d = a;
  b.threads = 1;
  c.target = "t";
  d.kernel = std::string("k\0t", 3);
  EXPECT_NE(RequestName(a), RequestName(b));
  EXPECT_NE(RequestName(a), RequestName(c));
  EXPECT_NE(RequestName(c), RequestName(d));
  b.threads = 256;
  d = a;
  d.threads = 1;
  EXPECT_NE(RequestName(b), RequestName(d));
  b = a;
  b.no_compile = true;
  EXPECT_EQ(RequestName(a), RequestName(b));
}

}  // namespace
}  // namespace hone
