#include "base/id.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <type_traits>

namespace hone {
namespace {

using LakeId = Id<struct LakeTag>;
using RiverId = Id<struct RiverTag>;

static_assert(!std::is_convertible_v<int, LakeId> && !std::is_convertible_v<LakeId, int>);
static_assert(!std::is_constructible_v<LakeId, RiverId>);

TEST(Id, IsNoneUnlessItIsGivenAPosition) {
  EXPECT_FALSE(LakeId());
  EXPECT_TRUE(LakeId(0));
  EXPECT_NE(LakeId(), LakeId(0));
  EXPECT_LT(LakeId(), LakeId(0));
  EXPECT_LT(LakeId(2), LakeId(10));
  EXPECT_EQ((std::set<LakeId>{LakeId(3), LakeId(1), LakeId(3)}.size()), 2u);
}

TEST(IdVector, CountsItsElementsFromZero) {
  IdVector<LakeId, std::string> lakes;
  EXPECT_TRUE(lakes.empty());
  const LakeId baikal = lakes.Add("Baikal"), titicaca = lakes.Add("Titicaca");
  EXPECT_EQ(baikal.value, 0);
  EXPECT_EQ(titicaca.index(), 1u);
  EXPECT_EQ(lakes[titicaca], "Titicaca");
  std::string all;
  for (LakeId id : lakes.ids()) all += lakes[id] + " ";
  EXPECT_EQ(all, "Baikal Titicaca ");
  const IdVector<RiverId, int> lengths(3, 7);
  EXPECT_EQ(lengths.size(), 3u);
  EXPECT_EQ(lengths[RiverId(2)], 7);
}

TEST(IdVector, GivesOtherIdsBehindWhatComesAndGoes) {
  IdVector<LakeId, std::string> lakes;
  const LakeId baikal = lakes.Add("Baikal"), titicaca = lakes.Add("Titicaca");
  lakes.Insert(titicaca, {"Como", "Garda"});
  lakes.Insert(baikal, "Aral");
  lakes.Erase(LakeId(2));
  auto text = [&] {
    std::string all;
    for (LakeId id = lakes.last(); id; --id) all += lakes[id] + " ";
    return all;
  };
  EXPECT_EQ(text(), "Titicaca Garda Baikal Aral ");
  EXPECT_EQ(lakes.EraseIf([](const std::string& name) { return name.size() == 4; }), 1u);
  EXPECT_EQ(text(), "Titicaca Garda Baikal ");
  EXPECT_TRUE(lakes.contains(LakeId(2)));
  EXPECT_FALSE(lakes.contains(LakeId(3)));
  EXPECT_FALSE(lakes.contains(LakeId()));
  EXPECT_FALSE((IdVector<LakeId, int>().last()));
}

TEST(IdRange, GoesFromOneIdUpToAnother) {
  std::string all;
  for (LakeId id : IdRange<LakeId>(2, 5)) all += std::to_string(id.value);
  EXPECT_EQ(all, "234");
  EXPECT_EQ(IdRange<LakeId>(2, 5).size(), 3u);
  EXPECT_EQ(IdRange<LakeId>(0).size(), 0u);
}

}  // namespace
}  // namespace hone
