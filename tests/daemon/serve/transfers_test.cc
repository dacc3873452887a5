// Kernels that nobody has tuned, from the socket to the record: who is asked, what is served, what is told of it.
#include "daemon/serve/transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <set>
#include <thread>

#include "base/subprocess.h"
#include "cache/tuning_gain.h"
#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "tests/daemon/test_server.h"

namespace hone {
namespace {

using ::testing::HasSubstr;
using testing::Soon;
using testing::TestServer;

TransferProvenance Provenance() {
  TransferProvenance provenance;
  provenance.confidence = 0.25;
  provenance.guesses = {{"default", "", "", false, 0, 0.5, 0, false, 0, ""},
                        {"steps", std::string(32, 'a'), "dense(M=1,\tN=2)\n", true, 1.5, 0.75, 12.5, true, 3, ""},
                        {"decisions", std::string(32, 'b'), "k", false, 2, 0, 0, false, 0, "the same program"}};
  provenance.notes = {{"kept", "split y.n 4", "split y.n 4", ""}, {"dropped", "unroll y.q", "", "y has no loop q"}};
  return provenance;
}

TEST(TransferStories, ComeBackAsTheyWere) {
  Result<TransferProvenance> back = ParseProvenance(PrintProvenance(Provenance()));
  ASSERT_TRUE(back) << back.error().Text();
  ASSERT_EQ(back->guesses.size(), 3u);
  EXPECT_EQ(back->confidence, 0.25);
  EXPECT_EQ(back->guesses[1].kernel, "dense(M=1, N=2) ");
  EXPECT_TRUE(back->guesses[1].chosen);
  EXPECT_EQ(back->guesses[1].changed, 3u);
  EXPECT_EQ(back->guesses[1].measured_us, 12.5);
  EXPECT_EQ(back->guesses[2].refused, "the same program");
  ASSERT_EQ(back->notes.size(), 2u);
  EXPECT_EQ(back->notes[1].why, "y has no loop q");
  EXPECT_EQ(PrintProvenance(*back), PrintProvenance(*ParseProvenance(PrintProvenance(*back))));
}

TEST(TransferStories, DamagedOnesAreNone) {
  const std::string text = PrintProvenance(Provenance());
  for (size_t n = 0; n < text.size(); ++n) {
    Result<TransferProvenance> cut = ParseProvenance(text.substr(0, n));
    if (cut) {  // whole lines: less of a provenance, but one
      EXPECT_EQ(text[n - 1], '\n') << n;
    }
  }
  for (const char* bad : {"", "transfer 2\nconfidence 1\n\n", "transfer 1\nconfidence x\nnote\ta\tb\tc\td\n",
                          "transfer 1\nconfidence nan\nnote\ta\tb\tc\td\n", "transfer 1\nconfidence 1\nnonsense\n",
                          "transfer 1\nconfidence 1\nguess\ta\tb\tc\t1\tx\t1\t1\t1\t1\t\n"})
    EXPECT_FALSE(ParseProvenance(bad)) << bad;
}

constexpr char kDonor[] = "matmul(M=64,N=64,K=64)";
constexpr char kWanted[] = "matmul(M=80,N=64,K=56)";

class TransfersTest : public ::testing::Test {
 protected:
  // A tuned kernel in the cache, before the daemon's transfers are made.
  void PutDonor(const std::string& text, const std::string& decision, int64_t value) {
    ResolvedKernel identity = *server_.path->Identify({text, "", 0});
    Space space = *Space::Open(identity.key.canonical, identity.target);
    std::string choices;
    const Candidate standard = *space.Default();
    for (const Choice& choice : standard.choices)
      if (choice.site.ends_with("." + decision)) choices = choice.site + "=" + std::to_string(value);
    Record record;
    record.key = identity.key;
    record.shape = identity.shape;
    record.label = identity.label;
    record.request = text;
    record.origin = Origin::kTuned;
    record.schedule = WithChoices(space.Parse(choices)->schedule, choices);
    ASSERT_TRUE(
        server_.cache->Put({.record = record, .class_text = identity.class_text, .artifact = {}}, Durability::kSoon));
    donor_ = identity.key.fingerprint;
  }
  void StartTransfers() {
    transfers_ = std::make_unique<Transfers>(*server_.cache, 2);
    ASSERT_TRUE(TestServer::Eventually([&] { return transfers_->IsReady(); }));
    server_.path->SetTransfers(transfers_.get());
  }
  Record RecordOf(const std::string& text) {
    return server_.cache->RecordsOf(server_.path->Identify({text, "", 0})->key.fingerprint)->at(0);
  }

  TestServer server_;
  std::unique_ptr<Transfers> transfers_;
  Fingerprint donor_;
};

TEST_F(TransfersTest, AMissIsServedFromANeighbourAndSaysSo) {
  PutDonor(kDonor, "rows", 3);
  StartTransfers();
  Result<GetReply> reply = server_.Get(kWanted);
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_EQ(reply->origin, "transferred");
  EXPECT_GT(reply->confidence, 0);
  EXPECT_LT(reply->confidence, 1);
  const Record record = RecordOf(kWanted);
  EXPECT_EQ(record.origin, Origin::kTransferred);
  EXPECT_EQ(record.donor, donor_);
  EXPECT_EQ(record.schedule, server_.pools.last_schedule) << "its decisions included";
  EXPECT_EQ(server_.metrics.transferred, 1u);
  // The same fit, made by hand.
  std::optional<TransferProvenance> provenance = ProvenanceOf(*server_.cache, record.key);
  ASSERT_TRUE(provenance);
  ASSERT_FALSE(provenance->notes.empty());
  EXPECT_EQ(
      std::count_if(provenance->guesses.begin(), provenance->guesses.end(), [](const auto& g) { return g.chosen; }), 1);
  // A hit tells the same.
  Result<GetReply> hit = server_.Get(kWanted);
  ASSERT_TRUE(hit);
  EXPECT_TRUE(hit->hit);
  EXPECT_EQ(hit->confidence, reply->confidence);
}

TEST_F(TransfersTest, WhatADonorGainedIsReadFromItsTrials) {
  PutDonor(kDonor, "rows", 3);
  Record donor = RecordOf(kDonor);
  donor.measured = Timing();
  donor.measured->time = std::chrono::microseconds(100);
  ASSERT_TRUE(server_.cache->Put({.record = donor, .class_text = "", .artifact = {}}, Durability::kSoon));
  auto gain = [&] {
    StartTransfers();
    TransferPlan plan = *transfers_->Plan(server_.path->Identify({kWanted, "", 0})->key,
                                          server_.path->devices().host().target, Reach::kWide);
    return plan.transfers.at(1).donor->gain;
  };
  EXPECT_EQ(gain(), 0) << "there is no trial of the default";
  TrialRecord tried, standard;
  tried.choices = "y.rows=2";
  tried.time = std::chrono::microseconds(900);
  standard.time = std::chrono::microseconds(150);
  ASSERT_TRUE(server_.cache->AppendTrials(donor.key, std::vector{tried, standard}));
  EXPECT_NEAR(gain(), std::log2(1.5), 1e-6);
  NoteTuningGain(*server_.cache, donor, false, 1.25, false);
  EXPECT_NEAR(gain(), std::log2(1.25), 1e-6) << "what was won head to head counts for more";
}

TEST_F(TransfersTest, ARecipientIsFittedAnewWhenItsDonorIsBettered) {
  PutDonor(kDonor, "rows", 3);
  StartTransfers();
  ASSERT_TRUE(server_.Get(kWanted));
  const Record recipient = RecordOf(kWanted);
  ASSERT_EQ(recipient.donor, donor_);
  ASSERT_TRUE(transfers_->DonorChanged(recipient));
  EXPECT_LE(*transfers_->DonorChanged(recipient), recipient.updated);
  EXPECT_FALSE(transfers_->DonorChanged(RecordOf(kDonor))) << "it has none itself";
  auto fits = [&] {
    const TransferPlan plan = *transfers_->Plan(recipient.key, server_.path->devices().host().target, Reach::kNear);
    std::set<std::string> schedules;
    for (const Transfer& fit : plan.transfers)
      if (fit.donor) schedules.insert(fit.candidate.schedule);
    return schedules;
  };
  const std::set<std::string> before = fits();
  EXPECT_EQ(fits(), before);

  std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the stamps' grain
  PutDonor(kDonor, "rows", 5);
  transfers_->ReadAgain(donor_);
  ASSERT_TRUE(TestServer::Eventually(
      [&] { return transfers_->DonorChanged(recipient).value_or(recipient.updated) > recipient.updated; }));
  EXPECT_NE(fits(), before) << "what is fitted now comes from the better schedule";
  ASSERT_TRUE(server_.cache->Remove(donor_));
  transfers_->ReadAgain(donor_);
  EXPECT_TRUE(TestServer::Eventually([&] { return !transfers_->DonorChanged(recipient); })) << "removed";
}

TEST_F(TransfersTest, WithoutDonorsTheDefaultIsServed) {
  StartTransfers();
  Result<GetReply> reply = server_.Get(kWanted);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->origin, "default");
  EXPECT_EQ(reply->confidence, 0);
  EXPECT_EQ(server_.pools.last_schedule, "");
}

TEST_F(TransfersTest, AGuessThatCannotBeBuiltIsPassedOver) {
  PutDonor(kDonor, "rows", 3);
  StartTransfers();
  TransferPlan plan = *transfers_->Plan(server_.path->Identify({kWanted, "", 0})->key,
                                        server_.path->devices().host().target, Reach::kWide);
  ASSERT_GE(plan.order.size(), 2u);
  const Candidate& first = plan.transfers[plan.order[0]].candidate;
  server_.pools.fail_schedule = WithChoices(first.schedule, PrintChoices(first.choices));
  Result<GetReply> reply = server_.Get(kWanted);
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_NE(server_.pools.last_schedule, server_.pools.fail_schedule);
  EXPECT_EQ(server_.pools.builds, 2);
}

TEST_F(TransfersTest, ADonorThatDoesNotParseAnyMoreIsNoDonor) {
  PutDonor(kDonor, "rows", 3);
  Record broken = RecordOf(kDonor);
  broken.schedule = "no schedule at all";
  ASSERT_TRUE(server_.cache->Put({.record = broken, .class_text = "", .artifact = {}}, Durability::kSoon));
  StartTransfers();
  Result<GetReply> reply = server_.Get(kWanted);
  ASSERT_TRUE(reply) << reply.error().Text();
  // Its choices are gone with the text: what is left of it is what the rules decide for it.
  std::optional<TransferProvenance> provenance = ProvenanceOf(*server_.cache, RecordOf(kWanted).key);
  ASSERT_TRUE(provenance);
  for (const TransferGuess& guess : provenance->guesses) {
    EXPECT_EQ(guess.way == "steps", !guess.refused.empty() && guess.refused.find("same program") == std::string::npos)
        << guess.way << ": " << guess.refused;
  }
}

// Stages that read the one before them twice, as many as `links`.
std::string Chain(int links) {
  std::string text = "kernel chain(x: f32[N]) -> y: f32[N] where N=1024 {\n  t0: f32[N] t0[n] = x[n] * 2\n";
  for (int i = 1; i <= links; ++i) {
    const std::string now = "t" + std::to_string(i), before = "t" + std::to_string(i - 1);
    text += "  " + now + ": f32[N] " + now + "[n] = " + before + "[n] * 0.5 + " + before + "[n]\n";
  }
  return text + "  y[n] = t" + std::to_string(links) + "[n]\n}";
}

TEST_F(TransfersTest, NoKernelCostsAPlanMuch) {
  for (int links : {2, 3, 5, 8}) PutDonor(Chain(links), "nothing", 0);
  StartTransfers();
  for (int links : {12, 50, 100, 200}) {
    ResolvedKernel identity = *server_.path->Identify({Chain(links), "", 0});
    const std::clock_t before = std::clock();  // of all threads
    Result<TransferPlan> plan = transfers_->Plan(identity.key, identity.target, Reach::kWide);
    EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, kShadowMemory ? 10 : 1) << links;
    if (links == 12) {
      ASSERT_TRUE(plan) << plan.error().Text();
      EXPECT_GT(plan->transfers.size(), 4u);
    }
    if (links == 200) {
      ASSERT_FALSE(plan);
      EXPECT_EQ(plan.error().kind, ErrorKind::kLimit);
    }
  }
  EXPECT_EQ(server_.Get(Chain(200))->origin, "default");
}

TEST_F(TransfersTest, APlanThatNobodyWaitsForEnds) {
  PutDonor(kDonor, "rows", 3);
  StartTransfers();
  ResolvedKernel identity = *server_.path->Identify({kWanted, "", 0});
  std::stop_source stop;
  EXPECT_TRUE(transfers_->Plan(identity.key, identity.target, Reach::kWide, stop.get_token()));
  stop.request_stop();
  Result<TransferPlan> plan = transfers_->Plan(identity.key, identity.target, Reach::kWide, stop.get_token());
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().kind, ErrorKind::kUnavailable);
}

TEST_F(TransfersTest, ThereIsAThreadThatReadsAndAnEnd) {
  PutDonor(kDonor, "rows", 3);
  Transfers transfers(*server_.cache, 2);
  transfers.Close();
  EXPECT_LE(transfers.donors().size(), 1u);
}

}  // namespace
}  // namespace hone
