// What CheckArtifact lets through and what it refuses: real shared objects with one offence each, then the same file
// with damaged headers, cut short, and with random bytes flipped.
#include "base/elf_check.h"

#include <dlfcn.h>
#include <elf.h>
#include <gmock/gmock.h>

#include <cstring>
#include <functional>

#include "base/bytes.h"
#include "base/cpu_features.h"
#include "base/hash.h"
#include "base/rng.h"
#include "tests/support/c_artifact.h"

namespace hone {
namespace {

using testing::CManifest;
using testing::CompileArtifact;
using testing::CPrologue;
using ::testing::HasSubstr;

const char kEntry[] = "EXPORT int hone_entry(const hone_env *e, void *const *b, const int64_t *s) { return 0; }\n";

std::string Good() {
  return CPrologue() + CManifest("the manifest") + "static const char *const names[] = {\"ab\", \"cd\"};\n" +
         "EXPORT int hone_entry(const hone_env *e, void *const *b, const int64_t *s) {\n"
         "  const char *volatile *v = (const char *volatile *)names; return v[e->workers & 1][0]; }\n"
         "EXPORT int hone_pack(const hone_env *e, int32_t o, const void *s, void *d) { return 0; }\n";
}

void ExpectRefused(const std::vector<std::byte>& bytes, const std::string& why) {
  Result<ArtifactLayout> layout = CheckArtifact(bytes, {});
  ASSERT_FALSE(layout) << "wanted: " << why;
  EXPECT_EQ(layout.error().kind, ErrorKind::kCorrupt);
  EXPECT_THAT(layout.error().message, HasSubstr(why));
}

// The good artifact after `edit` has had its hands on it.
std::vector<std::byte> Edited(const std::function<void(std::vector<std::byte>&)>& edit) {
  std::vector<std::byte> bytes = CompileArtifact(Good());
  edit(bytes);
  return bytes;
}

template <typename T>
T Get(const std::vector<std::byte>& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <typename T>
void Put(std::vector<std::byte>& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// Edits the first program header that `pick` accepts.
std::vector<std::byte> EditedSegment(const std::function<bool(const Elf64_Phdr&)>& pick,
                                     const std::function<void(Elf64_Phdr&)>& edit) {
  return Edited([&](std::vector<std::byte>& bytes) {
    Elf64_Ehdr header = Get<Elf64_Ehdr>(bytes, 0);
    for (size_t i = 0; i < header.e_phnum; ++i) {
      size_t at = header.e_phoff + i * sizeof(Elf64_Phdr);
      Elf64_Phdr segment = Get<Elf64_Phdr>(bytes, at);
      if (!pick(segment)) continue;
      edit(segment);
      Put(bytes, at, segment);
      return;
    }
    ADD_FAILURE() << "no such segment";
  });
}

// Edits the first dynamic entry with `tag`.
std::vector<std::byte> EditedTag(int64_t tag, const std::function<void(Elf64_Dyn&)>& edit) {
  return Edited([&](std::vector<std::byte>& bytes) {
    Elf64_Ehdr header = Get<Elf64_Ehdr>(bytes, 0);
    for (size_t i = 0; i < header.e_phnum; ++i) {
      Elf64_Phdr segment = Get<Elf64_Phdr>(bytes, header.e_phoff + i * sizeof(Elf64_Phdr));
      if (segment.p_type != PT_DYNAMIC) continue;
      for (size_t at = segment.p_offset; at < segment.p_offset + segment.p_filesz; at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn entry = Get<Elf64_Dyn>(bytes, at);
        if (entry.d_tag != tag) continue;
        edit(entry);
        Put(bytes, at, entry);
        return;
      }
    }
    ADD_FAILURE() << "no such tag";
  });
}

bool IsCode(const Elf64_Phdr& s) { return s.p_type == PT_LOAD && (s.p_flags & PF_X) != 0; }
bool IsData(const Elf64_Phdr& s) { return s.p_type == PT_LOAD && (s.p_flags & PF_W) != 0; }

TEST(CheckArtifact, AcceptsWhatWeEmitAndFindsTheManifest) {
  std::vector<std::byte> bytes = CompileArtifact(Good());
  Result<ArtifactLayout> layout = CheckArtifact(bytes, {});
  ASSERT_TRUE(layout) << layout.error().message;
  EXPECT_EQ(AsText(layout->manifest), "the manifest");
  EXPECT_TRUE(layout->has_pack);
}

TEST(CheckArtifact, AcceptsEitherHashTable) {
  for (const char* style : {"sysv", "gnu", "both"}) {
    Result<ArtifactLayout> layout =
        CheckArtifact(CompileArtifact(Good(), std::string("-Wl,--hash-style=") + style), {});
    EXPECT_TRUE(layout) << style << ": " << layout.error().message;
  }
}

TEST(CheckArtifact, AcceptsMissingPack) {
  Result<ArtifactLayout> layout = CheckArtifact(CompileArtifact(CPrologue() + CManifest("m") + kEntry), {});
  ASSERT_TRUE(layout) << layout.error().message;
  EXPECT_FALSE(layout->has_pack);
}

TEST(CheckArtifact, AcceptsRelativeRelocations) {
  std::vector<std::byte> bytes =
      CompileArtifact(CPrologue() + CManifest("m") +
                      "static const int one = 1, two = 2;\n"
                      "static const int *const volatile table[] = {&one, &two};\n"
                      "EXPORT int hone_entry(const hone_env *e, void *const *b, const int64_t *s) { return "
                      "*table[e->workers & 1]; }\n");
  Result<ArtifactLayout> layout = CheckArtifact(bytes, {});
  EXPECT_TRUE(layout) << layout.error().message;
}

TEST(CheckArtifact, RefusesOtherLibraries) {
  ExpectRefused(CompileArtifact(Good(), "-Wl,--no-as-needed -lc"), "another library");
}

TEST(CheckArtifact, RefusesConstructorsAndDestructors) {
  ExpectRefused(CompileArtifact(Good() + "__attribute__((constructor)) static void f(void) { __asm__(\"\"); }\n"),
                "constructor");
  ExpectRefused(CompileArtifact(Good() + "__attribute__((destructor)) static void f(void) { __asm__(\"\"); }\n"),
                "destructor");
  ExpectRefused(CompileArtifact(Good() + "void start(void) { __asm__(\"\"); }\n", "-Wl,-init,start"), "constructor");
}

TEST(CheckArtifact, RefusesIfunc) {
  // One that is exported, and one that is only used: an IRELATIVE relocation.
  ExpectRefused(CompileArtifact(Good() + "static int g(void) { return 1; } static void *pick(void) { return g; }\n"
                                         "EXPORT int f(void) __attribute__((ifunc(\"pick\")));\n"),
                "refused");
  std::string used = CPrologue() + CManifest("m") +
                     "static int g(void) { return 1; } static void *pick(void) { return g; }\n"
                     "static int f(void) __attribute__((ifunc(\"pick\")));\n"
                     "EXPORT int hone_entry(const hone_env *e, void *const *b, const int64_t *s) { return f(); }\n";
  ExpectRefused(CompileArtifact(used), "refused");
}

TEST(CheckArtifact, RefusesThreadLocalStorage) {
  ExpectRefused(CompileArtifact(Good() + "static __thread int t = 3; EXPORT int *f(void) { return &t; }\n",
                                "-ftls-model=initial-exec"),
                "thread-local");
}

TEST(CheckArtifact, RefusesTextRelocations) {
  ExpectRefused(CompileArtifact(Good() + "__asm__(\".text; .quad hone_manifest\");\n", "-Wl,-z,notext"), "DT_TEXTREL");
}

TEST(CheckArtifact, RefusesWritableCode) {
  ExpectRefused(CompileArtifact(Good(), "-Wl,--omagic"), "refused");
  ExpectRefused(EditedSegment(IsCode, [](Elf64_Phdr& s) { s.p_flags |= PF_W; }), "writable and executable");
}

TEST(CheckArtifact, RefusesExecutableStack) {
  ExpectRefused(CompileArtifact(Good(), "-Wl,-z,execstack"), "executable stack");
  // Without the header the loader assumes the worst.
  ExpectRefused(EditedSegment([](const Elf64_Phdr& s) { return s.p_type == PT_GNU_STACK; },
                              [](Elf64_Phdr& s) { s.p_type = PT_PHDR, s.p_offset = sizeof(Elf64_Ehdr); }),
                "executable stack");
}

// In a branch that no call takes, so that no run of it would show.
TEST(CheckArtifact, RefusesInstructionsThatLeadOutOfTheProcess) {
  auto with = [](const char* code) {
    return CompileArtifact(CPrologue() + CManifest("m") +
                           "EXPORT int hone_entry(const hone_env *e, void *const *b, const int64_t *s) {\n"
                           "if (__builtin_expect(e->workers == 12345, 0)) __asm__ volatile(\"" +
                           code + "\"); return 0; }\n");
  };
  EXPECT_TRUE(CheckArtifact(with("nop"), {}));
#if defined(__x86_64__)
  for (const char* code : {"syscall",
                           "sysenter",
                           "int $0x80",
                           "ljmp *(%rdi)",
                           "lcall *(%rdi)",
                           "lretq",
                           "iretq",
                           "sysexitq",
                           "sysretq",
                           "inb %dx, %al",
                           "rep outsb",
                           "hlt",
                           "cli",
                           "wrmsr",
                           "rdmsr",
                           "wrpkru",
                           "xsetbv",
                           "xrstor (%rdi)",
                           "fxrstor (%rdi)",
                           "wrfsbase %rax",
                           "movq %rax, %cr0",
                           "mov %eax, %ds",
                           "popfq",
                           "movq %fs:0, %rax",
                           "cpuid",
                           "rdtsc",
                           "jmp *%rax",
                           "call *%rax",
                           ".byte 0xe9, 1, 0, 0, 0; movl $0x050f, %eax"})
#else
  for (const char* code : {"svc #0", "hvc #0", "smc #0", "msr fpcr, x0", "mrs x0, tpidr_el0", "br x0"})
#endif
    ExpectRefused(with(code), "its code has");
}

TEST(CheckArtifact, RefusesSymbolsThatAreNotOurs) {
  ExpectRefused(CompileArtifact(Good() + "EXPORT int malloc(void) { return 1; }\n"), "exports malloc");
  ExpectRefused(CompileArtifact(Good() + "EXPORT int data = 1;\n"), "exports data");
  ExpectRefused(CompileArtifact(Good() + "int getpid(void); EXPORT int f(void) { return getpid(); }\n"), "refused");
  ExpectRefused(CompileArtifact(Good() + "extern int environ; EXPORT int *f(void) { return &environ; }\n"), "refused");
  ExpectRefused(CompileArtifact(CPrologue() + CManifest("m")), "does not export hone_entry");
  ExpectRefused(CompileArtifact(CPrologue() + kEntry), "does not export hone_manifest");
  ExpectRefused(CompileArtifact(CPrologue() + CManifest("m") + "EXPORT int hone_entry = 1;\n"),
                "hone_entry is not a function");
  ExpectRefused(CompileArtifact(CPrologue() + kEntry + "EXPORT unsigned char hone_manifest[4] = {1};\n"),
                "hone_manifest lies in a segment with flags");
}

TEST(CheckArtifact, RefusesWhatIsNoSharedObjectOfThisMachine) {
  ExpectRefused({}, "too few");
  ExpectRefused(std::vector<std::byte>(4096), "not an ELF file");
  ExpectRefused(Edited([](auto& b) { Put<uint8_t>(b, EI_CLASS, ELFCLASS32); }), "64-bit");
  ExpectRefused(Edited([](auto& b) { Put<uint8_t>(b, EI_OSABI, ELFOSABI_GNU); }), "OS ABI");
  ExpectRefused(Edited([](auto& b) { Put<uint16_t>(b, offsetof(Elf64_Ehdr, e_type), ET_EXEC); }), "ELF type");
  ExpectRefused(Edited([](auto& b) { Put<uint16_t>(b, offsetof(Elf64_Ehdr, e_machine), EM_RISCV); }), "ELF machine");
}

TEST(CheckArtifact, RefusesHeadersThatLeadOutside) {
  ExpectRefused(Edited([](auto& b) { Put<uint64_t>(b, offsetof(Elf64_Ehdr, e_phoff), UINT64_MAX - 8); }), "outside");
  ExpectRefused(Edited([](auto& b) { Put<uint64_t>(b, offsetof(Elf64_Ehdr, e_phoff), 0); }), "outside");
  ExpectRefused(Edited([](auto& b) { Put<uint64_t>(b, offsetof(Elf64_Ehdr, e_shoff), b.size() - 8); }), "outside");
  ExpectRefused(EditedSegment(IsCode, [](Elf64_Phdr& s) { s.p_filesz = s.p_memsz = UINT64_MAX - 4096; }), "outside");
  ExpectRefused(EditedSegment(IsCode, [](Elf64_Phdr& s) { s.p_offset += 1 << 20; }), "outside");
  ExpectRefused(EditedSegment(IsData, [](Elf64_Phdr& s) { s.p_memsz = uint64_t{1} << 40; }), "segment of");
  ExpectRefused(EditedSegment(IsData, [](Elf64_Phdr& s) { s.p_memsz = s.p_filesz - 1; }), "segment of");
  ExpectRefused(EditedSegment(IsData, [](Elf64_Phdr& s) { s.p_vaddr += UINT64_MAX - 0x4000 + 1; }), "segment");
  ExpectRefused(EditedSegment(IsCode, [](Elf64_Phdr& s) { s.p_vaddr -= 0x1000; }), "overlap");
  ExpectRefused(EditedSegment(IsCode, [](Elf64_Phdr& s) { s.p_align = 3; }), "alignment");
  ExpectRefused(EditedSegment(IsCode, [](Elf64_Phdr& s) { s.p_memsz += 64; }), "zero fill");
  ExpectRefused(EditedSegment([](const Elf64_Phdr& s) { return s.p_type == PT_GNU_RELRO; },
                              [](Elf64_Phdr& s) { s.p_memsz = 1 << 20; }),
                "RELRO");
  ExpectRefused(
      EditedSegment([](const Elf64_Phdr& s) { return s.p_type == PT_DYNAMIC; }, [](Elf64_Phdr& s) { s.p_vaddr += 16; }),
      "dynamic segment");
}

TEST(CheckArtifact, RefusesDamagedTables) {
  for (int64_t tag : {DT_SYMTAB, DT_STRTAB, DT_GNU_HASH})
    ExpectRefused(EditedTag(tag, [](Elf64_Dyn& d) { d.d_un.d_ptr = 1 << 30; }), "outside");
  ExpectRefused(EditedTag(DT_STRSZ, [](Elf64_Dyn& d) { d.d_un.d_val = 3; }), "name");
  ExpectRefused(EditedTag(DT_SYMENT, [](Elf64_Dyn& d) { d.d_un.d_val = 16; }), "symbols of 16 bytes");
  ExpectRefused(EditedTag(DT_SYMENT, [](Elf64_Dyn& d) { d.d_tag = DT_SYMTAB; }), "twice");
  ExpectRefused(EditedTag(DT_NULL, [](Elf64_Dyn& d) { d.d_tag = DT_SYMENT; }), "refused");
  ExpectRefused(EditedTag(DT_FLAGS_1, [](Elf64_Dyn& d) { d.d_un.d_val |= DF_1_INTERPOSE; }), "DT_FLAGS_1");
}

// Where a table is that a dynamic tag points to: in these files addresses of tables are file offsets.
size_t TableAt(const std::vector<std::byte>& bytes, int64_t tag) {
  Elf64_Ehdr header = Get<Elf64_Ehdr>(bytes, 0);
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment = Get<Elf64_Phdr>(bytes, header.e_phoff + i * sizeof(Elf64_Phdr));
    for (size_t at = segment.p_offset; segment.p_type == PT_DYNAMIC && at < segment.p_offset + segment.p_filesz;
         at += 16)
      if (Get<int64_t>(bytes, at) == tag) return Get<uint64_t>(bytes, at + 8);
  }
  ADD_FAILURE() << "no table";
  return 0;
}

std::vector<std::byte> Relocated() {
  return CompileArtifact(
      CPrologue() + CManifest("m") +
      "static const int one = 1;\n"
      "static const int *const volatile table[] = {&one};\n"
      "EXPORT int hone_entry(const hone_env *e, void *const *b, const int64_t *s) { return *table[0]; }\n");
}

// glibc takes it for granted that who has relocations says how large they are, and reads at null else.
TEST(CheckArtifact, RefusesRelocationsWithoutTheirSize) {
  for (int64_t tag : {DT_RELAENT, DT_RELASZ, DT_RELA}) {
    std::vector<std::byte> bytes = Relocated();
    ASSERT_TRUE(CheckArtifact(bytes, {}));
    Elf64_Ehdr header = Get<Elf64_Ehdr>(bytes, 0);
    for (size_t i = 0; i < header.e_phnum; ++i) {
      Elf64_Phdr segment = Get<Elf64_Phdr>(bytes, header.e_phoff + i * sizeof(Elf64_Phdr));
      for (size_t at = segment.p_offset; segment.p_type == PT_DYNAMIC && at < segment.p_offset + segment.p_filesz;
           at += sizeof(Elf64_Dyn))
        if (Get<int64_t>(bytes, at) == tag) Put(bytes, at, Elf64_Dyn{DT_SONAME, {0}});
    }
    ExpectRefused(bytes, "a malformed relocation table");
  }
}

// The loader reads the dynamic segment again after it has relocated.
TEST(CheckArtifact, RefusesRelocationsOfTheDynamicSegment) {
  std::vector<std::byte> bytes = Relocated();
  ASSERT_TRUE(CheckArtifact(bytes, {}));
  const size_t table = TableAt(bytes, DT_RELA);
  Elf64_Rela relocation = Get<Elf64_Rela>(bytes, table);
  Elf64_Ehdr header = Get<Elf64_Ehdr>(bytes, 0);
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment = Get<Elf64_Phdr>(bytes, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (segment.p_type != PT_DYNAMIC) continue;
    for (uint64_t place : {segment.p_vaddr, segment.p_vaddr + 8, segment.p_vaddr + segment.p_memsz - 8}) {
      relocation.r_offset = place;
      Put(bytes, table, relocation);
      ExpectRefused(bytes, "a relocation of the dynamic segment");
    }
  }
}

TEST(CheckArtifact, RefusesHashTablesThatRunAway) {
  // Without the end marks of its chains a lookup walks on through the file.
  std::vector<std::byte> bytes = CompileArtifact(Good());
  size_t table = TableAt(bytes, DT_GNU_HASH);
  uint32_t buckets = Get<uint32_t>(bytes, table), bloom = Get<uint32_t>(bytes, table + 8);
  for (uint32_t i = 0; i < 3; ++i) {
    size_t link = table + 16 + 8 * bloom + 4 * buckets + 4 * i;
    Put<uint32_t>(bytes, link, Get<uint32_t>(bytes, link) & ~1u);
  }
  ExpectRefused(bytes, "refused");
  // A chain that bites its own tail never ends.
  bytes = CompileArtifact(Good(), "-Wl,--hash-style=sysv");
  table = TableAt(bytes, DT_HASH);
  buckets = Get<uint32_t>(bytes, table);
  uint32_t chains = Get<uint32_t>(bytes, table + 4);
  for (uint32_t i = 1; i < chains; ++i) Put<uint32_t>(bytes, table + 8 + 4 * (buckets + i), i);
  ExpectRefused(bytes, "leads outside itself");
}

TEST(CheckArtifact, ComparesSizeAndDigest) {
  std::vector<std::byte> bytes = CompileArtifact(Good());
  Digest256 digest = Hash256(bytes);
  ArtifactExpectations wanted{.size = bytes.size(), .digest = std::string(AsText(std::as_bytes(std::span(digest))))};
  EXPECT_TRUE(CheckArtifact(bytes, wanted));
  wanted.digest[7] ^= 1;
  EXPECT_THAT(CheckArtifact(bytes, wanted).error().message, HasSubstr("digest"));
  wanted.size += 1;
  EXPECT_THAT(CheckArtifact(bytes, wanted).error().message, HasSubstr("bytes, wanted"));
}

TEST(CheckProcessor, RefusesAnIsaThatThisCpuLacks) {
  std::string foreign = CpuHasFeature("neon") ? "avx512" : "neon";
  Result<void> checked = CheckProcessor(foreign, {});
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().kind, ErrorKind::kUnsupported);
  std::string own = CpuHasFeature("neon") ? "neon" : "avx2";
  const std::vector<std::string> unheard_of = {"quantum"};
  EXPECT_TRUE(CheckProcessor(own, {}));
  EXPECT_FALSE(CheckProcessor(own, unheard_of));
  EXPECT_FALSE(CheckProcessor("vax", {}));
}

TEST(CheckArtifact, AcceptsOtherMachinesOnlyWhenAsked) {
  // Compiled for arm64 once; the gate reads ELF of either machine on both.
  std::string text = testing::ReadFile(HONE_SOURCE_DIR "/tests/fuzz/corpus/elf_check/arm64");
  std::string own = testing::ReadFile(HONE_SOURCE_DIR "/tests/fuzz/corpus/elf_check/relocated");
  if (CpuHasFeature("neon")) std::swap(text, own);
  EXPECT_TRUE(CheckArtifact(AsBytes(own), {}));
  EXPECT_TRUE(CheckArtifact(AsBytes(text), {.other_machine = true}));
  Result<ArtifactLayout> layout = CheckArtifact(AsBytes(text), {});
  ASSERT_FALSE(layout);
  EXPECT_THAT(layout.error().message, HasSubstr("for ELF machine"));
}

TEST(CheckArtifact, RefusesEveryTruncation) {
  std::vector<std::byte> bytes = CompileArtifact(Good());
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_FALSE(CheckArtifact(cut, {})) << size;
  }
}

// Random damage: never reads out of bounds (the sanitizer builds see it), and what is still accepted loads.
TEST(CheckArtifact, SurvivesRandomDamage) {
  std::vector<std::byte> good = CompileArtifact(Good());
  uint64_t seed = 20240917;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  Rng rng(seed);
  int accepted = 0;
  testing::ScratchFolder folder;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> bytes = good;
    for (uint64_t flips = 1 + rng.Below(3); flips > 0; --flips)
      bytes[rng.Below(0x400)] = static_cast<std::byte>(rng.Chance(0.3) ? 0xff : rng.Below(256));
    bytes.shrink_to_fit();
    if (!CheckArtifact(bytes, {})) continue;
    ++accepted;
    if (accepted % 20 != 0) continue;
    std::string path = folder.path() + "/" + std::to_string(round) + ".so";
    testing::WriteFile(path, std::string(AsText(bytes)));
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;  // a clean refusal by the loader is fine
    ::dlsym(library, "hone_entry");
    ::dlsym(library, "absent");
    ::dlclose(library);
  }
  EXPECT_GT(accepted, 100);  // damage to padding and code is none of our business
}

}  // namespace
}  // namespace hone
