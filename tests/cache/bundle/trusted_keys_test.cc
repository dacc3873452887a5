// Keys: their files, whom a directory of them makes trusted, and what is refused for whose sake.
#include "cache/bundle/trusted_keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"
#include "tests/support/sample_bundles.h"
#include "tests/support/temporary_directory.h"

namespace hone {
namespace {

constexpr WallTime kNow{std::chrono::milliseconds(1'750'000'000'000)};  // 2025-06-15

KeyFile SampleKeyFile() {
  KeyFile file;
  file.name = "fleet";
  file.roles = kSchedules | kArtifacts;
  file.key = PublicKeyOf(kSampleSeed);
  return file;
}

class TrustedKeysTest : public ::testing::Test {
 protected:
  std::string Keys() const { return directory_ / "keys"; }
  void SetUp() override { ASSERT_EQ(mkdir(Keys().c_str(), 0700), 0); }
  void WriteKey(const std::string& name, std::string_view text) {
    ASSERT_TRUE(WriteFileAtomically(Keys() + "/" + name, text, 0600).has_value());
  }
  Result<Judgement> Judge(const std::string& bytes) {
    const TrustedKeys keys = HONE_TRY(TrustedKeys::Read({Keys(), "/nowhere/at/all"}));
    return keys.Judge(HONE_TRY(Bundle::Open(AsBytes(bytes))), kNow);
  }
  void ExpectRefused(const std::string& bytes, const std::string& words) {
    Result<Judgement> judged = Judge(bytes);
    ASSERT_FALSE(judged.has_value());
    EXPECT_EQ(judged.error().kind, ErrorKind::kInvalid);
    EXPECT_NE(judged.error().Text().find(words), std::string::npos) << judged.error().Text();
  }

  TemporaryDirectory directory_;
  const std::string signed_ = *SampleBundle(2).Write(kSampleSeed);
};

TEST(Ed25519, GivesTheVectorsOfRfc8032) {
  SigningSeed seed;
  ASSERT_TRUE(ParseHex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb", seed));
  EXPECT_EQ(HexOf(PublicKeyOf(seed)), "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
  const Signature signature = Sign(seed, "\x72");
  EXPECT_EQ(HexOf(signature),
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00");
  EXPECT_TRUE(IsSignedBy(PublicKeyOf(seed), signature, "\x72"));
  EXPECT_FALSE(IsSignedBy(PublicKeyOf(seed), signature, "\x73"));
  EXPECT_FALSE(IsSignedBy(PublicKey{}, signature, "\x72"));
  EXPECT_NE(RandomSigningSeed(), RandomSigningSeed());
}

TEST(KeyFileTest, RoundTrips) {
  KeyFile file = SampleKeyFile();
  file.expires = ParseDate("2031-02-28");
  file.seed = kSampleSeed;
  for (int secret = 1; secret >= 0; --secret) {
    if (!secret) file.seed.reset();
    Result<KeyFile> read = DecodeKeyFile(EncodeKeyFile(file), "f");
    ASSERT_TRUE(read.has_value()) << read.error().Text();
    EXPECT_EQ(EncodeKeyFile(*read), EncodeKeyFile(file));
    EXPECT_EQ(read->seed.has_value(), secret == 1);
  }
}

TEST(KeyFileTest, SaysWhichLineIsWrong) {
  const std::string text = EncodeKeyFile(SampleKeyFile());
  auto message = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    Result<KeyFile> read = DecodeKeyFile(changed, "fleet.pub");
    return read ? std::string("accepted") : read.error().Text();
  };
  EXPECT_EQ(message("hone key 1", "ssh-ed25519 AAAA").substr(0, 12), "fleet.pub:1:");
  EXPECT_EQ(message("name fleet", "name ../fleet").substr(0, 12), "fleet.pub:3:");
  EXPECT_NE(message("artifacts", "everything").find("fleet.pub:4: saw the role \"everything\""), std::string::npos);
  EXPECT_EQ(message("never", "2031-02-30").substr(0, 12), "fleet.pub:5:");
  EXPECT_EQ(message("public ", "public zz").substr(0, 12), "fleet.pub:6:");
  EXPECT_EQ(message("kind public", "kind secret").substr(0, 12), "fleet.pub:7:");
  EXPECT_EQ(message("kind public\n", "").substr(0, 12), "fleet.pub:2:");
  EXPECT_EQ(message("hone key 1\n", "hone key 1\n# ours\n"), "accepted");
  for (size_t size = 0; size < text.size() - 1; ++size)
    EXPECT_FALSE(DecodeKeyFile(std::string_view(text).substr(0, size), "f").has_value()) << size;
}

TEST(KeyFileTest, DatesAreThoseOfTheCalendar) {
  EXPECT_EQ(DateText(*ParseDate("2024-02-29")), "2024-02-29");
  for (const char* text : {"2025-02-29", "2025-13-01", "2025-00-10", "2025-1-1", "20250101", "never", "", "2025-01-0x"})
    EXPECT_FALSE(ParseDate(text).has_value()) << text;
  const auto now = std::chrono::sys_days(std::chrono::year(2026) / 11 / 27) + std::chrono::hours(14);
  EXPECT_EQ(DateText(*ParseExpiry("2026-11-28", now)), "2026-11-28");
  // Beyond what nanoseconds can say, too.
  for (const char* text : {"2262-04-11", "2262-04-12", "9999-12-31"}) {
    const Result<WallTime> date = ParseExpiry(text, now);
    ASSERT_TRUE(date) << date.error().Text();
    EXPECT_EQ(DateText(*date), text);
  }
  EXPECT_EQ(ParseExpiry("2026-11-27", now).error().Text(),
            "--expires: 2026-11-27 is past: it would be refused from the first");
  EXPECT_FALSE(ParseExpiry("soon", now));
}

TEST_F(TrustedKeysTest, ASecretKeyThatOthersCanReadIsWarnedAbout) {
  KeyFile file = SampleKeyFile();
  file.seed = kSampleSeed;
  WriteKey("fleet.key", EncodeKeyFile(file));
  const std::string path = Keys() + "/fleet.key";
  EXPECT_EQ(ReadKeyFile(path)->warning, "");
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_NE(ReadKeyFile(path)->warning.find("others can read this secret key"), std::string::npos);
  EXPECT_EQ(ReadKeyFile(Keys() + "/none").error().kind, ErrorKind::kNotFound);
}

TEST_F(TrustedKeysTest, AKeyIsKnownByItsFile) {
  EXPECT_EQ(Judge(*SampleBundle(2).Write(std::nullopt))->vouched, Vouched::kUnsigned);
  EXPECT_EQ(Judge(signed_)->vouched, Vouched::kUnknown);
  EXPECT_FALSE(Judge(signed_)->Allows(kArtifacts));
  WriteKey("fleet.pub", EncodeKeyFile(SampleKeyFile()));
  WriteKey("notes.txt", "not looked at");
  EXPECT_EQ(Judge(signed_)->vouched, Vouched::kKnown);
  EXPECT_TRUE(Judge(signed_)->Allows(kArtifacts));
  EXPECT_FALSE(Judge(signed_)->Allows(kCostModels));
  EXPECT_EQ(Judge(*SampleBundle(2).Write(SigningSeed{9}))->vouched, Vouched::kUnknown);
}

TEST_F(TrustedKeysTest, AnExpiredKeyIsRefused) {
  KeyFile file = SampleKeyFile();
  file.expires = ParseDate("2025-06-15");
  WriteKey("fleet.pub", EncodeKeyFile(file));
  ExpectRefused(signed_, "fleet, has expired on 2025-06-15");
  file.expires = ParseDate("2025-06-16");
  WriteKey("fleet.pub", EncodeKeyFile(file));
  EXPECT_EQ(Judge(signed_)->vouched, Vouched::kKnown);
}

TEST_F(TrustedKeysTest, ARevokedKeyIsRefusedKnownOrNot) {
  WriteKey("revoked", "# lost\n" + HexOf(PublicKeyOf(kSampleSeed)) + " the laptop was stolen\n");
  ExpectRefused(signed_, "was revoked: the laptop was stolen");
  WriteKey("fleet.pub", EncodeKeyFile(SampleKeyFile()));
  ExpectRefused(signed_, "was revoked");
  TrustedKeys keys = *TrustedKeys::Read({Keys()});
  keys.Add(SampleKeyFile());
  EXPECT_FALSE(keys.Judge(*Bundle::Open(AsBytes(signed_)), kNow).has_value());
  WriteKey("revoked", "all of them\n");
  ExpectRefused(signed_, "revoked:1");
}

TEST_F(TrustedKeysTest, WhatIsRevokedIsKnownWhateverOtherFilesAreLike) {
  WriteKey("another-program's.pub", "ssh-ed25519 AAAA\n");
  EXPECT_FALSE(TrustedKeys::Read({Keys()}).has_value());
  EXPECT_TRUE(TrustedKeys::ReadRevoked({Keys(), "/nowhere/at/all"})->empty());
  WriteKey("revoked", HexOf(PublicKeyOf(kSampleSeed)) + " lost\n");
  EXPECT_EQ(*TrustedKeys::ReadRevoked({Keys()}), (std::set<PublicKey>{PublicKeyOf(kSampleSeed)}));
  WriteKey("revoked", "all of them\n");
  EXPECT_FALSE(TrustedKeys::ReadRevoked({Keys()}).has_value());
}

TEST_F(TrustedKeysTest, EachOfSeveralFilesOfOneKeyNarrowsIt) {
  KeyFile narrow = SampleKeyFile(), wide = SampleKeyFile();
  narrow.roles = kSchedules;
  wide.roles = kSchedules | kArtifacts;
  WriteKey("a.pub", EncodeKeyFile(narrow));
  WriteKey("b.pub", EncodeKeyFile(wide));
  EXPECT_TRUE(Judge(signed_)->Allows(kSchedules));
  EXPECT_FALSE(Judge(signed_)->Allows(kArtifacts));
  WriteKey("a.pub", EncodeKeyFile(wide));
  EXPECT_TRUE(Judge(signed_)->Allows(kArtifacts));
  wide.expires = kNow;
  WriteKey("a.pub", EncodeKeyFile(wide));
  ExpectRefused(signed_, "has expired");
}

TEST_F(TrustedKeysTest, ABundlePastItsDateIsRefused) {
  BundleSample sample = SampleBundle(2);
  sample.manifest.expires = kNow;
  ExpectRefused(*sample.Write(kSampleSeed), "sample has expired on 2025-06-15");
  ExpectRefused(*sample.Write(std::nullopt), "sample has expired");
  sample.manifest.expires = kNow + std::chrono::seconds(1);
  EXPECT_TRUE(Judge(*sample.Write(kSampleSeed)).has_value());
}

TEST_F(TrustedKeysTest, KeysThatOthersCanChangeAreRefused) {
  WriteKey("fleet.pub", EncodeKeyFile(SampleKeyFile()));
  ASSERT_EQ(chmod((Keys() + "/fleet.pub").c_str(), 0666), 0);
  ExpectRefused(signed_, "fleet.pub");
  ASSERT_EQ(chmod((Keys() + "/fleet.pub").c_str(), 0644), 0);
  EXPECT_TRUE(Judge(signed_).has_value());
  ASSERT_EQ(chmod(Keys().c_str(), 0777), 0);
  ExpectRefused(signed_, "keys");
  ASSERT_EQ(chmod(Keys().c_str(), 0700), 0);
  KeyFile secret = SampleKeyFile();
  secret.seed = kSampleSeed;
  WriteKey("fleet.pub", EncodeKeyFile(secret));
  ExpectRefused(signed_, "holds a secret key");
  WriteKey("fleet.pub", "nonsense");
  ExpectRefused(signed_, "fleet.pub:1");
}

TEST(Follows, AnOlderOneDoesNotReplaceANewerOne) {
  auto bundle = [](uint64_t version, int64_t issued, int first = 0) {
    BundleSample sample = SampleBundle(2, first);
    sample.manifest.version = version;
    sample.manifest.issued = WallTime(std::chrono::milliseconds(issued));
    return *sample.Write(kSampleSeed);
  };
  auto follows = [](const std::string& next, const std::string& last) {
    const Predecessor predecessor = PredecessorOf(*Bundle::Open(AsBytes(last)));
    const Predecessor stored = *DecodePredecessor(EncodePredecessor(predecessor));
    Result<void> follows = CheckFollows(*Bundle::Open(AsBytes(next)), stored);
    if (!follows) { EXPECT_EQ(follows.error().kind, ErrorKind::kInvalid); }
    return follows.has_value();
  };
  EXPECT_TRUE(follows(bundle(2, 2000), bundle(1, 1000)));
  EXPECT_TRUE(follows(bundle(1, 1000), bundle(1, 1000)));      // again
  EXPECT_FALSE(follows(bundle(1, 1000), bundle(2, 2000)));     // rollback
  EXPECT_TRUE(follows(bundle(3, 1000), bundle(2, 2000)));      // its newest record was withdrawn
  EXPECT_FALSE(follows(bundle(2, 2000, 5), bundle(2, 2000)));  // another one of the same version
  EXPECT_FALSE(DecodePredecessor("x").has_value());
}

}  // namespace
}  // namespace hone
