// The control group for what runs when nobody else wants to: where it lies, and what it does.
#include "base/idle_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/xattr.h>

#include <latch>
#include <thread>

#include "base/file.h"
#include "base/subprocess.h"
#include "tests/support/temporary_directory.h"

namespace hone {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

constexpr char kUnified[] = "25 30 0:23 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr char kBoth[] =
    "30 25 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    "33 25 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "34 25 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:13 master:4 - cgroup cgroup rw,cpu,cpuacct\n";

GroupPlace Found(const std::string& groups, const std::string& mounts) {
  Result<GroupPlace> place = FindGroup(groups, mounts);
  EXPECT_TRUE(place) << place.error().Text();
  return place.value_or(GroupPlace());
}

TEST(FindGroup, VersionTwo) {
  EXPECT_EQ(Found("0::/system.slice/honed.service\n", kUnified),
            (GroupPlace{"/sys/fs/cgroup/system.slice/honed.service", true}));
  EXPECT_EQ(Found("0::/\n", kUnified), (GroupPlace{"/sys/fs/cgroup", true}));
}

TEST(FindGroup, VersionOneWhereItSharesProcessors) {
  EXPECT_EQ(Found("5:cpuset:/\n4:cpu,cpuacct:/a b\n0::/user.slice\n", kBoth),
            (GroupPlace{"/sys/fs/cgroup/cpu,cpuacct/a b", false}));
  // Processors belong to version 2 where no hierarchy of version 1 has taken them.
  EXPECT_EQ(Found("5:cpuset:/\n1:name=systemd:/init\n0::/user.slice\n", kBoth),
            (GroupPlace{"/sys/fs/cgroup/unified/user.slice", true}));
}

TEST(FindGroup, APartOfAHierarchyIsMounted) {
  const std::string part = "25 30 0:23 /machine/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(Found("0::/machine/1/app\n", part), (GroupPlace{"/sys/fs/cgroup/app", true}));
  EXPECT_EQ(Found("0::/machine/1\n", part), (GroupPlace{"/sys/fs/cgroup", true}));
  EXPECT_FALSE(FindGroup("0::/machine/10\n", part));
  EXPECT_FALSE(FindGroup("0::/machine\n", part));
}

TEST(FindGroup, ThereIsNone) {
  for (const auto& [groups, mounts] : {std::pair<std::string, std::string>{"", kUnified},
                                       {"0::/\n", ""},
                                       {"0::/\n", "25 30 0:23 / /proc rw - proc proc rw\n"},
                                       {"4:cpu:/\n", kUnified},
                                       {"::\n:\nx", "\n - \n25 30 - cgroup2\n"}}) {
    Result<GroupPlace> place = FindGroup(groups, mounts);
    ASSERT_FALSE(place) << groups << mounts;
    EXPECT_EQ(place.error().kind, ErrorKind::kUnsupported);
  }
}

// A directory that looks like a group of version 2, without the kernel behind it.
class LooksLikeAGroup {
 public:
  explicit LooksLikeAGroup(const std::string& enabled) {
    EXPECT_TRUE(CreateDirectories(place.directory + "/" + idle));
    Put("cgroup.controllers", "cpuset cpu io\n");
    Put("cgroup.subtree_control", enabled);
    Put(idle + "/cgroup.type", "domain\n");
    Put(idle + "/cpu.idle", "0\n");
  }
  void Put(const std::string& name, const std::string& text) {
    EXPECT_TRUE(WriteFileAtomically(place.directory + "/" + name, text));
  }
  std::string Get(const std::string& name) { return *ReadFile(place.directory + "/" + name, 100); }

  TemporaryDirectory temp;
  GroupPlace place{temp.path() + "/group", true};
  const std::string idle = "hone-idle-" + std::to_string(getpid());
};

TEST(IdleGroup, IsThreadedWhereTheGroupWasHandedOver) {
  LooksLikeAGroup ours("");
  if (::setxattr(ours.place.directory.c_str(), "user.delegate", "1", 1, 0) != 0)
    GTEST_SKIP() << "[SKIP] no extended attributes in " << ours.place.directory;
  Result<IdleGroup> group = IdleGroup::CreateBelow(ours.place);
  ASSERT_TRUE(group) << group.error().Text();
  EXPECT_EQ(ours.Get(ours.idle + "/cgroup.type"), "threaded");
  EXPECT_EQ(ours.Get("cgroup.subtree_control"), "+cpu");
  EXPECT_EQ(ours.Get(ours.idle + "/cpu.idle")[0], '1');
}

TEST(IdleGroup, IsNotMadeInGroupsOfOthers) {
  LooksLikeAGroup theirs("memory");
  Result<IdleGroup> group = IdleGroup::CreateBelow(theirs.place);
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().kind, ErrorKind::kUnsupported);
  EXPECT_THAT(group.error().message, HasSubstr("not ours to share"));
  EXPECT_EQ(theirs.Get("cgroup.subtree_control"), "memory");
  theirs.Put("cgroup.controllers", "memory\n");
  EXPECT_THAT(IdleGroup::CreateBelow(theirs.place).error().message, HasSubstr("does not share processors"));
  // Where it is shared already, as in the first of all groups, nothing has to be changed.
  LooksLikeAGroup shared("memory cpu");
  EXPECT_TRUE(IdleGroup::CreateBelow(shared.place));
  EXPECT_EQ(shared.Get("cgroup.subtree_control"), "memory cpu");
}

TEST(IdleGroup, RemovesWhatTheDeadLeftBehind) {
  LooksLikeAGroup group("cpu");
  for (const char* name : {"hone-idle-99999999", "hone-idle-1", "hone-idl"})
    ASSERT_TRUE(CreateDirectories(group.place.directory + "/" + name));
  ASSERT_TRUE(IdleGroup::CreateBelow(group.place));
  const std::vector<std::string> left = *ListDirectory(group.place.directory);
  EXPECT_THAT(left, Not(Contains("hone-idle-99999999")));
  EXPECT_THAT(left, IsSupersetOf({"hone-idl", "hone-idle-1"}));
}

TEST(IdleGroup, HoldsWhatIsStartedInIt) {
  std::string directory;
  {
    Result<IdleGroup> group = IdleGroup::Create();
    if (!group) GTEST_SKIP() << "[SKIP] no idle control group: " << group.error().Text();
    directory = group->entrance().substr(0, group->entrance().rfind('/'));
    EXPECT_EQ(ReadFile(directory + "/cpu.idle", 16).value_or(""), "1\n");
    SubprocessOptions options;
    options.executable = "/bin/sh";
    options.arguments = {"-c", "cat /proc/self/cgroup >&2"};
    options.limits.idle = true;
    options.limits.idle_group = group->entrance();
    Result<Subprocess> child = Subprocess::Start(options);
    ASSERT_TRUE(child) << child.error().Text();
    ASSERT_TRUE(child->Wait(std::chrono::steady_clock::now() + std::chrono::seconds(10)));
    EXPECT_THAT(child->ErrorTail(), HasSubstr("/hone-idle-"));
  }
  EXPECT_FALSE(ReadFile(directory + "/cpu.idle", 16)) << directory;
}

TEST(IdleGroup, ThreadsVisitItAndThoseThatTheyBegin) {
  auto mine = [] { return ReadFile("/proc/thread-self/cgroup", 1 << 16).value_or(""); };
  const std::string before = mine();
  Result<IdleGroup> group = IdleGroup::Create();
  if (!group) GTEST_SKIP() << "[SKIP] no idle control group: " << group.error().Text();
  std::string inside, helper, main_thread;
  std::jthread([&] {
    IdleGroup::Visit visit(&*group);
    inside = mine();
    std::jthread([&] { helper = mine(); }).join();
    main_thread = ReadFile("/proc/self/cgroup", 1 << 16).value_or("");
  }).join();
  EXPECT_THAT(inside, HasSubstr("/hone-idle-"));
  EXPECT_EQ(helper, inside);
  EXPECT_EQ(main_thread, before);
  {
    IdleGroup::Visit visit(&*group);
    EXPECT_EQ(mine(), inside);
    IdleGroup::Visit nowhere(nullptr);
  }
  EXPECT_EQ(mine(), before);
}

TEST(IdleGroup, RecallsThreadsOfThisProcessAlone) {
  auto group_of = [](const std::string& what) { return ReadFile("/proc/" + what + "/cgroup", 1 << 16).value_or(""); };
  const std::string before = group_of("thread-self");
  Result<IdleGroup> group = IdleGroup::Create();
  if (!group) GTEST_SKIP() << "[SKIP] no idle control group: " << group.error().Text();
  SubprocessOptions options;
  options.executable = "/bin/sleep";
  options.arguments = {"100"};
  options.limits.idle = true;
  options.limits.idle_group = group->entrance();
  Result<Subprocess> other = Subprocess::Start(options);
  ASSERT_TRUE(other) << other.error().Text();
  std::latch inside(3), recalled(1);
  std::string thread, helper;
  std::jthread visitor([&] {
    IdleGroup::Visit visit(&*group);
    std::jthread help([&] {
      inside.arrive_and_wait();
      recalled.wait();
      helper = group_of("thread-self");
    });
    inside.arrive_and_wait();
    recalled.wait();
    thread = group_of("thread-self");
  });
  inside.arrive_and_wait();
  group->Recall();
  recalled.count_down();
  visitor.join();
  EXPECT_EQ(thread, before);
  EXPECT_EQ(helper, before);
  EXPECT_THAT(group_of(std::to_string(other->pid())), HasSubstr("/hone-idle-"));
  group->Recall();  // nobody is left to come
}

}  // namespace
}  // namespace hone
