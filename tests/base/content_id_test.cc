// Two files that hold something else have other ids, by the linker's word or by their bytes.
#include "base/content_id.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "base/file.h"

namespace hone {
namespace {

struct WithNotes {
  Elf64_Ehdr header{};
  Elf64_Phdr segment{};
  struct {
    Elf64_Nhdr head;
    char name[4];
    uint8_t id[8];
  } other{{4, 8, NT_GNU_ABI_TAG}, "GNU", {}}, build_id{{4, 8, NT_GNU_BUILD_ID}, "GNU", {1, 2, 0xab, 4, 5, 6, 7, 8}};

  WithNotes() {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_phoff = offsetof(WithNotes, segment);
    header.e_phentsize = sizeof segment;
    header.e_phnum = 1;
    segment.p_type = PT_NOTE;
    segment.p_offset = offsetof(WithNotes, other);
    segment.p_filesz = sizeof other + sizeof build_id;
  }
};

std::string IdOf(const WithNotes& notes, const std::string& rest = "") {
  const std::string path =
      ::testing::TempDir() + "content_id." + ::testing::UnitTest::GetInstance()->current_test_info()->name();
  std::string bytes(sizeof notes, '\0');
  std::memcpy(bytes.data(), &notes, sizeof notes);
  EXPECT_TRUE(WriteFileAtomically(path, bytes + rest));
  return ContentId(path).value();
}

TEST(ContentId, IsWhatTheLinkerWrote) { EXPECT_EQ(IdOf({}, "whatever follows"), "0102ab0405060708"); }

TEST(ContentId, IsOfAllBytesWhereTheLinkerWroteNone) {
  WithNotes none;
  none.build_id.head.n_type = 77;
  EXPECT_NE(IdOf(none, "a"), IdOf(none, "b"));
  EXPECT_EQ(IdOf(none, "a"), IdOf(none, "a"));
}

TEST(ContentId, NotesThatLieAreNone) {
  const auto is_by_bytes = [](const WithNotes& notes) { return IdOf(notes, "a") != IdOf(notes, "b"); };
  WithNotes notes;
  notes.build_id.head.n_descsz = 9;
  EXPECT_TRUE(is_by_bytes(notes));
  notes = {};
  notes.other.head.n_namesz = ~0u;
  EXPECT_TRUE(is_by_bytes(notes));
  notes = {};
  notes.segment.p_filesz = ~uint64_t{0};
  EXPECT_TRUE(is_by_bytes(notes));
  notes = {};
  notes.segment.p_offset = ~uint64_t{0};
  EXPECT_TRUE(is_by_bytes(notes));
  notes = {};
  notes.header.e_phoff = ~uint64_t{0};
  EXPECT_TRUE(is_by_bytes(notes));
  notes = {};
  notes.build_id.head.n_descsz = 0;
  EXPECT_TRUE(is_by_bytes(notes));
}

TEST(ContentId, OfNothingIsAnError) {
  EXPECT_EQ(ContentId(::testing::TempDir() + "not_there").error().kind, ErrorKind::kNotFound);
}

}  // namespace
}  // namespace hone
