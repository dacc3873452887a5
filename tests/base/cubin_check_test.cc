// What CUDA's driver is handed lies wholly inside its bytes, whatever its tables say.
#include "base/cubin_check.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "tests/support/some_cubin.h"

namespace hone {
namespace {

using Cubin = testing::CubinParts;

bool IsTaken(const Cubin& cubin, size_t size = sizeof(Cubin)) {
  // Of exactly that size, so that a sanitizer sees what is read beyond.
  const auto whole = std::as_bytes(std::span(&cubin, 1));
  const std::vector<std::byte> bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
  return CheckCubin(bytes).has_value();
}

TEST(CubinCheck, TakesWhatLiesInside) { EXPECT_TRUE(IsTaken({})); }

TEST(CubinCheck, RefusesEveryTruncation) {
  for (size_t size = 0; size < sizeof(Cubin); ++size) EXPECT_FALSE(IsTaken({}, size)) << size;
}

TEST(CubinCheck, RefusesWhatLiesOutsideAndWhatIsNone) {
  const std::function<void(Cubin&)> edits[] = {
      [](Cubin& c) { c.header.e_ident[0] = 'E'; },
      [](Cubin& c) { c.header.e_ident[EI_CLASS] = ELFCLASS32; },
      [](Cubin& c) { c.header.e_machine = EM_X86_64; },
      [](Cubin& c) { c.header.e_shoff = ~uint64_t{0}; },
      [](Cubin& c) { c.header.e_shoff = sizeof(Cubin) - 8; },
      [](Cubin& c) { c.header.e_shnum = 0; },
      [](Cubin& c) { c.header.e_shnum = 0xffff; },
      [](Cubin& c) { c.header.e_shentsize = 1; },
      [](Cubin& c) { c.header.e_shstrndx = 3; },
      [](Cubin& c) { c.sections[1].sh_size = 9; },
      [](Cubin& c) { c.sections[1].sh_offset = ~uint64_t{0} - 3; },
      [](Cubin& c) { c.header.e_phnum = 0xffff; },
      [](Cubin& c) { c.header.e_phoff = ~uint64_t{0} - 7; },
      [](Cubin& c) { c.header.e_phentsize = 0; },
      [](Cubin& c) { c.segment.p_filesz = ~uint64_t{0}; },
      [](Cubin& c) { c.segment.p_offset = sizeof(Cubin) + 1; },
  };
  for (size_t i = 0; i < std::size(edits); ++i) {
    Cubin cubin;
    edits[i](cubin);
    EXPECT_FALSE(IsTaken(cubin)) << i;
  }
  Cubin without_segments;
  without_segments.header.e_phnum = 0;
  EXPECT_TRUE(IsTaken(without_segments));
}

}  // namespace
}  // namespace hone
