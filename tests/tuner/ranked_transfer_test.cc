// Fits by steps and by decisions, and who is served first.
#include "tuner/ranked_transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "tuner/features.h"

namespace hone::ranked_transfer_test {
namespace {

using ::testing::HasSubstr;

Target Host() { return *ParseTarget("avx2 cpu=haswell l1=32768 l2=262144 l3=8388608 cores=2"); }

Space OpenSpace(const std::string& text) {
  Result<Space> space = Space::Open(Canonicalize(ParseKernel(text).value()).text, Host());
  EXPECT_TRUE(space) << space.error().Text();
  return *std::move(space);
}

// A kernel that was tuned to these choices.
Record Tuned(const std::string& text, const std::string& choices) {
  Canonical canonical = Canonicalize(ParseKernel(text).value());
  Result<Candidate> candidate = OpenSpace(text).Parse(choices);
  EXPECT_TRUE(candidate) << candidate.error().Text();
  EXPECT_EQ(PrintChoices(candidate->choices), choices);
  Record record;
  record.key.fingerprint = FingerprintOf(canonical);
  record.key.class_fingerprint = ClassFingerprintOf(canonical);
  record.key.canonical = canonical.text;
  record.key.target = PrintTarget(Host());
  record.request = text;
  record.schedule = WithChoices(candidate->schedule, choices);
  record.origin = Origin::kTuned;
  return record;
}

std::vector<Transfer> TransfersTo(const std::string& text, const std::vector<Record>& donors,
                                  TransferOptions options = {}, double gain = 0) {
  Neighbours neighbours;
  for (const Record& record : donors) neighbours.Put(record, gain);
  Canonical canonical = Canonicalize(ParseKernel(text).value());
  Space space = OpenSpace(text);
  Neighbours::Query query;
  query.fingerprint = FingerprintOf(canonical);
  query.class_fingerprint = ClassFingerprintOf(canonical);
  query.silhouette = SilhouetteOf(space.kernel());
  query.target = PrintTarget(Host());
  return MakeTransfers(space, neighbours.Nearest(query), options);
}

const Transfer* Find(const std::vector<Transfer>& transfers, FitWay way) {
  for (const Transfer& transfer : transfers)
    if (transfer.way == way) return &transfer;
  return nullptr;
}

int64_t ValueOf(const Candidate& candidate, const std::string& decision) {
  for (const Choice& choice : candidate.choices)
    if (choice.site.ends_with("." + decision)) return choice.value;
  return -1;
}

// Finds what a site is called in the canonical names of the kernel.
std::string Site(const std::string& text, const std::string& decision) {
  const Candidate candidate = *OpenSpace(text).Default();
  for (const Choice& choice : candidate.choices)
    if (choice.site.ends_with("." + decision)) return choice.site;
  ADD_FAILURE() << text << " has no decision " << decision;
  return "";
}

constexpr char kDonor[] = "dense(M=128,N=256,K=512,const=1)";
constexpr char kWanted[] = "dense(M=96,N=512,K=384,const=1)";

TEST(TunerTransfer, DecisionsAreKeptWhereTheyAreOptions) {
  const std::string choices = Site(kDonor, "rows") + "=3";
  std::vector<Transfer> transfers = TransfersTo(kWanted, {Tuned(kDonor, choices)});
  ASSERT_GE(transfers.size(), 3u);
  EXPECT_EQ(transfers[0].way, FitWay::kDefault);
  EXPECT_EQ(transfers[0].candidate.program, OpenSpace(kWanted).Default()->program);
  const Transfer* steps = Find(transfers, FitWay::kSteps);
  ASSERT_NE(steps, nullptr);
  EXPECT_EQ(steps->refused, "");
  EXPECT_FALSE(steps->notes.empty());
  const Transfer* decisions = Find(transfers, FitWay::kDecisions);
  ASSERT_NE(decisions, nullptr);
  if (decisions->refused.empty()) { EXPECT_EQ(ValueOf(decisions->candidate, "rows"), 3); }
  bool is_told = false;
  for (const FitNote& note : decisions->notes) is_told |= note.now.ends_with(".rows=3");
  EXPECT_TRUE(is_told);
}

TEST(TunerTransfer, TheNearestOptionWhereTheyAreNone) {
  const std::string choices = Site(kDonor, "rows") + "=3";
  std::vector<Transfer> transfers = TransfersTo("dense(M=2,N=512,K=384,const=1)", {Tuned(kDonor, choices)});
  const Transfer* decisions = Find(transfers, FitWay::kDecisions);
  ASSERT_NE(decisions, nullptr);
  for (const FitNote& note : decisions->notes) {
    if (!note.step.ends_with(".rows=3")) continue;
    EXPECT_EQ(note.fate, FitNote::Fate::kChanged);
    EXPECT_EQ(note.why, "the nearest option to 3");
  }
}

TEST(TunerTransfer, AcrossClassesByDecisionsAlone) {
  const std::string choices = Site(kDonor, "rows") + "=3";
  std::vector<Transfer> transfers = TransfersTo("matmul(M=96,N=512,K=384,const=1)", {Tuned(kDonor, choices)});
  EXPECT_EQ(Find(transfers, FitWay::kSteps), nullptr);
  const Transfer* decisions = Find(transfers, FitWay::kDecisions);
  ASSERT_NE(decisions, nullptr);
  EXPECT_FALSE(decisions->is_same_class);
  if (decisions->refused.empty()) { EXPECT_EQ(ValueOf(decisions->candidate, "rows"), 3); }
}

TEST(TunerTransfer, ToAnotherInstructionSetByDecisionsAlone) {
  Record donor = Tuned(kDonor, Site(kDonor, "rows") + "=3");
  donor.key.target = PrintTarget(*ParseTarget("avx512 cpu=skylake-avx512 l1=32768 l2=1048576 l3=8388608 cores=2"));
  const std::vector<Transfer> transfers = TransfersTo(kWanted, {donor});
  ASSERT_NE(Find(transfers, FitWay::kSteps), nullptr);
  EXPECT_THAT(Find(transfers, FitWay::kSteps)->refused, HasSubstr("registers of avx512"));
  ASSERT_NE(Find(transfers, FitWay::kDecisions), nullptr);
  EXPECT_EQ(Find(transfers, FitWay::kDecisions)->refused, "");
  EXPECT_EQ(ValueOf(Find(transfers, FitWay::kDecisions)->candidate, "rows"), 3);
}

TEST(TunerTransfer, EqualProgramsAreOneCandidate) {
  // Decided as the rules prefer, there and here.
  Record donor = Tuned(kDonor, "");
  std::vector<Transfer> transfers = TransfersTo(kDonor + std::string("+bias"), {donor});
  std::set<uint64_t> programs;
  bool is_any_the_same = false;
  for (const Transfer& transfer : transfers) {
    if (transfer.IsCandidate()) { EXPECT_TRUE(programs.insert(transfer.candidate.program).second); }
    if (!transfer.same_as) continue;
    is_any_the_same = true;
    EXPECT_EQ(transfer.candidate.program, transfers[*transfer.same_as].candidate.program);
  }
  EXPECT_TRUE(is_any_the_same);
}

TEST(TunerTransfer, HowManyThreadsThereAreDoesNotMatter) {
  const std::vector<Record> donors = {Tuned(kDonor, ""), Tuned(kDonor + std::string("+bias"), "")};
  auto seen = [&](int threads) {
    std::vector<std::string> all;
    for (const Transfer& transfer : TransfersTo(kDonor + std::string("+bias+relu"), donors, {.threads = threads})) {
      all.push_back(std::string(FitWayName(transfer.way)) + transfer.candidate.schedule + transfer.refused);
      for (const FitNote& note : transfer.notes) all.back() += note.step + note.now + note.why;
    }
    return all;
  };
  const std::vector<std::string> one = seen(1);
  EXPECT_GT(one.size(), 3u);
  EXPECT_EQ(seen(4), one);
}

TEST(TunerTransfer, StrictlyOnlyWhatDivides) {
  const std::string choices = Site(kDonor, "rows") + "=3";
  TransferOptions strict;
  strict.mode = FitMode::kStrict;
  std::vector<Transfer> transfers = TransfersTo("dense(M=97,N=512,K=384,const=1)", {Tuned(kDonor, choices)}, strict);
  ASSERT_EQ(transfers.size(), 2u);
  EXPECT_THAT(transfers[1].refused, HasSubstr("does not divide 97"));
}

// Likes what has the most of one feature.
class Liking : public CostModel {
 public:
  explicit Liking(std::vector<float> liked) : liked_(std::move(liked)) {}
  double trust = 1;
  float promised = 1;
  Result<void> Add(std::span<const Sample>) override { return {}; }
  Result<void> Update(uint64_t) override { return {}; }
  Result<void> Retrain(const std::stop_token&) override { return {}; }
  Result<std::optional<std::vector<float>>> Score(uint64_t, std::span<const std::vector<float>> rows) const override {
    std::vector<float> scores;
    for (const std::vector<float>& row : rows) scores.push_back(row == liked_ ? promised : 0);
    return std::optional(scores);
  }
  Result<std::optional<Gains>> Gain(const std::vector<float>&,
                                    std::span<const std::vector<float>> rows) const override {
    return std::optional(Gains{**Score(0, rows), trust});
  }
  Result<std::optional<Latency>> Predict(const std::vector<float>&) const override { return std::optional<Latency>(); }
  size_t SampleCount() const override { return 0; }
  size_t NewSampleCount() const override { return 0; }
  Result<std::string> Save() const override { return std::string(); }

 private:
  std::vector<float> liked_;
};

TEST(TunerTransfer, TheModelDecidesAndTheDefaultIsAContestant) {
  std::vector<Transfer> transfers = TransfersTo(kWanted, {Tuned(kDonor, Site(kDonor, "rows") + "=3")});
  for (const Transfer& wanted : transfers) {
    if (!wanted.IsCandidate()) continue;
    Liking model(wanted.candidate.features);
    std::vector<size_t> order = RankTransfers(transfers, &model);
    ASSERT_FALSE(order.empty());
    EXPECT_EQ(transfers[order[0]].candidate.features, wanted.candidate.features);
  }
}

TEST(TunerTransfer, WhatANearDonorGainedCountsWhereTheModelSeesNothing) {
  const std::string near = "dense(M=120,N=256,K=480,const=1)", far = "dense(M=2,N=4096,K=64,const=1)";
  const Liking sees_nothing({});
  auto first = [&](const std::string& text, double gain) {
    std::vector<Transfer> transfers = TransfersTo(text, {Tuned(kDonor, Site(kDonor, "rows") + "=3")}, {}, gain);
    return transfers[RankTransfers(transfers, &sees_nothing)[0]].donor != nullptr;
  };
  EXPECT_TRUE(first(near, 0.5));
  EXPECT_FALSE(first(near, 0)) << "as likely a loss as a gain";
  EXPECT_FALSE(first(far, 0.5));
}

// What the model promises of a device's program it says without knowing which loops are threads.
TEST(TunerTransfer, ASmallPromiseFromFarAwayIsNotBelievedOnDevices) {
  const std::vector<float> standard(FeatureNames().size(), 0), other(FeatureNames().size(), 1);
  auto is_first = [&](const std::string& target, double distance) {
    auto donor = std::make_shared<Donor>();
    donor->target = target;
    donor->gain = 0.2;
    std::vector<Transfer> transfers(2);
    transfers[0].candidate.features = standard;
    transfers[1].candidate.features = other;
    transfers[1].donor = donor;
    transfers[1].is_same_class = true;
    transfers[1].distance = distance;
    Liking model(other);
    model.promised = 0.1F;
    model.trust = 0.7;
    return RankTransfers(transfers, &model)[0] == 1;
  };
  const std::string device = "opencl block_bytes=1048576 block_threads=4096 type=cpu units=2";
  EXPECT_TRUE(is_first(PrintTarget(Host()), 2.2));
  EXPECT_FALSE(is_first(device, 2.2));
  EXPECT_TRUE(is_first(device, 0.5));
}

TEST(TunerTransfer, AModelThatIsNotTrustedDecidesNothing) {
  std::vector<Transfer> transfers = TransfersTo(kWanted, {Tuned(kDonor, Site(kDonor, "rows") + "=3")});
  Liking model(transfers.back().candidate.features);
  model.trust = 0;
  const std::vector<size_t> without = RankTransfers(transfers, nullptr);
  EXPECT_EQ(RankTransfers(transfers, &model), without);
}

TEST(TunerTransfer, WithoutAModelTheNearestDonorComesFirst) {
  std::vector<Transfer> transfers = TransfersTo(
      "dense(M=120,N=256,K=480,const=1)", {Tuned("dense(M=1024,N=2048,K=512,const=1)", Site(kDonor, "rows") + "=2"),
                                           Tuned(kDonor, Site(kDonor, "rows") + "=3")});
  std::vector<size_t> order = RankTransfers(transfers, nullptr);
  ASSERT_GE(order.size(), 2u);
  ASSERT_NE(transfers[order[0]].donor, nullptr);
  EXPECT_EQ(transfers[order[0]].donor->request, kDonor);
  const auto place = [&](auto is) { return std::find_if(order.begin(), order.end(), is) - order.begin(); };
  EXPECT_LT(place([&](size_t i) { return !transfers[i].donor; }),
            place([&](size_t i) { return transfers[i].donor && transfers[i].donor->request != kDonor; }))
      << "a distant donor is not worth the risk";
}

// Threefold is not a matter of the donor's shape: where rules have left so much of one kernel, they leave it of its
// neighbours, beyond the distance at which a usual fit wins.
TEST(TunerTransfer, WithoutAModelWhatADonorGainedCountsIfItIsMuch) {
  auto first = [&](const std::string& text, double gain) {
    std::vector<Transfer> transfers = TransfersTo(text, {Tuned(kDonor, Site(kDonor, "rows") + "=3")}, {}, gain);
    return transfers[RankTransfers(transfers, nullptr)[0]].donor != nullptr;
  };
  const std::string beyond = "dense(M=64,N=512,K=1024,const=1)", far = "dense(M=2,N=4096,K=64,const=1)";
  EXPECT_TRUE(first(beyond, 1.5));
  EXPECT_FALSE(first(beyond, 0));
  EXPECT_FALSE(first(beyond, 0.5)) << "what fits to a shape come to";
  EXPECT_FALSE(first(far, 2));
}

}  // namespace
}  // namespace hone::ranked_transfer_test
