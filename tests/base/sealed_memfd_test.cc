#include "base/sealed_memfd.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/bytes.h"

namespace hone {
namespace {

using ::testing::HasSubstr;

UniqueFd Memfd(std::string_view content, int seals) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::write(fd.get(), content.data(), content.size()), static_cast<ssize_t>(content.size()));
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(SealedMemfd, HoldsTheBytesForGood) {
  Result<SealedMemfd> memfd = SealedMemfd::Create(AsBytes("some code"));
  ASSERT_TRUE(memfd) << memfd.error().message;
  EXPECT_EQ(memfd->size(), 9u);
  EXPECT_EQ(AsText(memfd->Map()->bytes()), "some code");

  EXPECT_EQ(::pwrite(memfd->fd(), "x", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(memfd->fd(), 3), -1);
  EXPECT_EQ(::ftruncate(memfd->fd(), 30), -1);
  EXPECT_EQ(::mmap(nullptr, 9, PROT_READ | PROT_WRITE, MAP_SHARED, memfd->fd(), 0), MAP_FAILED);
}

TEST(SealedMemfd, AdoptsItsOwnKind) {
  Result<SealedMemfd> memfd = SealedMemfd::Create(AsBytes("some code"));
  Result<SealedMemfd> copy = memfd->Duplicate();
  ASSERT_TRUE(copy);
  Result<SealedMemfd> adopted = SealedMemfd::Adopt(std::move(*copy).TakeFd());
  ASSERT_TRUE(adopted) << adopted.error().message;
  EXPECT_EQ(AsText(adopted->Map()->bytes()), "some code");
}

TEST(SealedMemfd, EmptyIsAllowedAndMapsToNothing) {
  Result<SealedMemfd> memfd = SealedMemfd::Create({});
  ASSERT_TRUE(memfd);
  EXPECT_TRUE(memfd->Map()->bytes().empty());
}

TEST(SealedMemfd, RefusesEachMissingSeal) {
  constexpr int kAll = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  EXPECT_TRUE(SealedMemfd::Adopt(Memfd("x", kAll)));
  for (int seal : {F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE}) {
    Result<SealedMemfd> adopted = SealedMemfd::Adopt(Memfd("x", kAll & ~seal));
    ASSERT_FALSE(adopted) << seal;
    EXPECT_EQ(adopted.error().kind, ErrorKind::kInvalid);
    EXPECT_THAT(adopted.error().message, HasSubstr("seals"));
  }
}

TEST(SealedMemfd, RefusesOtherDescriptors) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  UniqueFd left(pair[0]), right(pair[1]);
  EXPECT_THAT(SealedMemfd::Adopt(std::move(left)).error().message, HasSubstr("not a memfd"));
  EXPECT_FALSE(SealedMemfd::Adopt(UniqueFd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC))));
  EXPECT_FALSE(SealedMemfd::Adopt(UniqueFd()));
}

TEST(SealedMemfd, RefusesWhatIsTooLarge) {
  Result<SealedMemfd> memfd = SealedMemfd::Create(std::vector<std::byte>(5000));
  Result<SealedMemfd> adopted = SealedMemfd::Adopt(std::move(*memfd).TakeFd(), 4999);
  ASSERT_FALSE(adopted);
  EXPECT_EQ(adopted.error().kind, ErrorKind::kLimit);
  // Sparse, so it costs nothing to be huge.
  UniqueFd huge(::memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(huge.get(), off_t{1} << 40), 0);
  ASSERT_EQ(::fcntl(huge.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
  EXPECT_EQ(SealedMemfd::Adopt(std::move(huge)).error().kind, ErrorKind::kLimit);
}

}  // namespace
}  // namespace hone
