// Trees that were planted, under whatever seal: XGBoost never follows them.
#include "tuner/booster.h"

#include <gtest/gtest.h>

#include <string>

namespace hone::booster_test {
namespace {

constexpr size_t kWidth = 3;

// One tree: a root that asks for feature 0, and two leaves.
std::string Saved() {
  Table table;
  table.width = kWidth;
  for (int i = 0; i < 64; ++i) {
    table.rows.insert(table.rows.end(), {static_cast<float>(i), 0, 0});
    table.labels.push_back(i < 32 ? 0.f : 1.f);
  }
  TrainOptions train;
  train.rounds = 1;
  train.depth = 1;
  train.columns = 1;
  Result<BoosterPtr> booster = Booster::Train(table, train);
  EXPECT_TRUE(booster) << booster.error().Text();
  return (*booster)->Save().value();
}

// With another value of that name.
std::string With(std::string json, const std::string& name, const std::string& value) {
  const std::string quoted = "\"" + name + "\":";
  const size_t at = json.find(quoted);
  EXPECT_NE(at, std::string::npos) << name << " in " << json;
  if (at == std::string::npos) return json;
  const size_t begin = at + quoted.size();
  const size_t end = json[begin] == '[' ? json.find(']', begin) + 1 : json.find_first_of(",}", begin);
  return json.replace(begin, end - begin, value);
}

void ExpectRefused(const std::string& json, const std::string& why) {
  Result<BoosterPtr> loaded = Booster::Load(json, kWidth, 1, 1);
  ASSERT_FALSE(loaded) << json;
  EXPECT_EQ(loaded.error().kind, ErrorKind::kCorrupt);
  EXPECT_NE(loaded.error().message.find(why), std::string::npos) << loaded.error().message;
}

TEST(Booster, LoadsWhatItSaved) {
  const std::string json = Saved();
  Result<BoosterPtr> loaded = Booster::Load(json, kWidth, 1, 1);
  ASSERT_TRUE(loaded) << loaded.error().Text();
  EXPECT_EQ((*loaded)->Save().value(), json);
}

TEST(Booster, RefusesABranchToItself) {
  ExpectRefused(With(With(Saved(), "left_children", "[0,-1,-1]"), "right_children", "[0,-1,-1]"),
                "node 0 of 3 leads to 0");
}

TEST(Booster, RefusesABranchBack) {
  const std::string json = With(With(Saved(), "left_children", "[1,0,-1]"), "right_children", "[2,2,-1]");
  ExpectRefused(json, "node 1 of 3 leads to 0");
}

TEST(Booster, RefusesABranchOutOfTheTree) {
  ExpectRefused(With(Saved(), "left_children", "[1073741824,-1,-1]"), "leads to 1073741824");
  ExpectRefused(With(Saved(), "right_children", "[-7,-1,-1]"), "leads to -7");
}

TEST(Booster, RefusesABranchWithOneEnd) { ExpectRefused(With(Saved(), "right_children", "[-1,-1,-1]"), "leads to -1"); }

TEST(Booster, RefusesAFeatureThatThereIsNot) {
  ExpectRefused(With(Saved(), "split_indices", "[1073741824,0,0]"), "feature 1073741824 of 3");
  ExpectRefused(With(Saved(), "split_indices", "[3,0,0]"), "feature 3 of 3");
  ExpectRefused(With(Saved(), "split_indices", "[-1,0,0]"), "feature -1 of 3");
}

TEST(Booster, RefusesCategories) {
  std::string json = With(With(Saved(), "split_type", "[1,0,0]"), "categories", "[-5,3]");
  json = With(With(json, "categories_nodes", "[0]"), "categories_segments", "[0]");
  ExpectRefused(With(json, "categories_sizes", "[2]"), "categories");
}

TEST(Booster, RefusesListsThatAreShorterThanTheTree) {
  ExpectRefused(With(Saved(), "num_nodes", "\"4\""), "of 4 nodes");
  ExpectRefused(With(Saved(), "base_weights", "[0]"), "base_weights");
}

TEST(Booster, RefusesOutputsThatThereAreNot) {
  ExpectRefused(With(Saved(), "tree_info", "[1073741824]"), "outputs");
  ExpectRefused(With(Saved(), "tree_info", "[0,0,0]"), "outputs");
  ExpectRefused(With(Saved(), "num_class", "\"7\""), "num_class");
}

TEST(Booster, RefusesOtherNumbersOfTrees) {
  ExpectRefused(With(Saved(), "num_trees", "\"9\""), "num_trees");
  ExpectRefused(With(Saved(), "num_parallel_tree", "\"0\""), "num_parallel_tree");
  ExpectRefused(With(Saved(), "id", "5"), "out of order");
}

TEST(Booster, RefusesOtherBoosters) {
  std::string json = Saved();
  json.replace(json.find("\"gbtree\""), 8, "\"gblinear\"");
  ExpectRefused(json, "gblinear");
}

TEST(Booster, RefusesWhatIsNestedWithoutEnd) {
  ExpectRefused("{\"learner\":" + std::string(1 << 20, '['), "nested deeper");
}

// Of two values of one name, the one that was checked is the one that is read.
TEST(Booster, ReadsWhatWasChecked) {
  std::string json = Saved();
  const std::string name = "\"left_children\":";
  json.insert(json.find(name), name + "[1073741824,-1,-1],");
  Result<BoosterPtr> loaded = Booster::Load(json, kWidth, 1, 1);
  if (loaded) { EXPECT_EQ((*loaded)->Save().value(), Saved()); }
}

}  // namespace
}  // namespace hone::booster_test
