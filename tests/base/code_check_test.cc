#include "base/code_check.h"

#include <elf.h>
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "base/x86_instruction.h"

namespace hone {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

std::string Hex(std::span<const std::byte> bytes) {
  std::string text;
  for (std::byte byte : bytes) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%02x ", static_cast<unsigned>(byte));
    text += digits;
  }
  return text;
}

constexpr uint64_t kAddress = 0x1000;

Result<void> CheckX86(const std::vector<std::byte>& code, std::vector<uint64_t> entries = {}) {
  const CodeSegment segment{kAddress, code};
  return CheckCode(EM_X86_64, {&segment, 1}, entries);
}

Result<void> CheckAarch64(const std::vector<uint32_t>& words) {
  const CodeSegment segment{kAddress, std::as_bytes(std::span(words))};
  return CheckCode(EM_AARCH64, {&segment, 1}, {});
}

// What the check says, or that it says nothing.
std::string Word(const Result<void>& checked) { return checked ? "accepted" : checked.error().message; }

// Encodings as llvm-mc prints them.
TEST(DecodeX86, KnowsHowLongInstructionsAre) {
  for (const std::vector<std::byte>& code : {
           Bytes({0xc3}),                                               // ret
           Bytes({0x50}),                                               // push rax
           Bytes({0x31, 0xc0}),                                         // xor eax, eax
           Bytes({0x48, 0x8b, 0x4e, 0x08}),                             // mov rcx, [rsi + 8]
           Bytes({0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8}),                 // movabs rax, imm64
           Bytes({0x66, 0xb8, 1, 2}),                                   // mov ax, imm16
           Bytes({0xc7, 0x44, 0x24, 0x08, 1, 2, 3, 4}),                 // mov dword [rsp + 8], imm32
           Bytes({0x66, 0xc7, 0x44, 0x24, 0x08, 1, 2}),                 // mov word [rsp + 8], imm16
           Bytes({0xf6, 0x07, 0x01}),                                   // test byte [rdi], 1
           Bytes({0xf6, 0xd8}),                                         // neg al
           Bytes({0x48, 0xf7, 0x05, 1, 2, 3, 4, 5, 6, 7, 8}),           // test qword [rip + disp32], imm32
           Bytes({0x42, 0x8b, 0x04, 0x25, 1, 2, 3, 4}),                 // mov eax, [r12 * 1 + disp32]
           Bytes({0x0f, 0x84, 1, 0, 0, 0}),                             // je, checked as an instruction alone
           Bytes({0x0f, 0xb6, 0xc0}),                                   // movzx eax, al
           Bytes({0xf3, 0x48, 0x0f, 0xb8, 0xc1}),                       // popcnt rax, rcx
           Bytes({0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0}),  // a long nop
           Bytes({0xc5, 0xf8, 0x77}),                                   // vzeroupper
           Bytes({0xc5, 0xfc, 0x10, 0x07}),                             // vmovups ymm0, [rdi]
           Bytes({0xc4, 0xe2, 0x75, 0xb8, 0x04, 0x87}),                 // vfmadd231ps ymm0, ymm1, [rdi + rax*4]
           Bytes({0xc4, 0xe3, 0x7d, 0x19, 0xc1, 0x01}),                 // vextractf128 xmm1, ymm0, 1
           Bytes({0xc5, 0xf1, 0x72, 0xd0, 0x1f}),                       // vpsrld xmm1, xmm0, 31
           Bytes({0xc4, 0xe3, 0xfb, 0xf0, 0xc1, 0x07}),                 // rorx rax, rcx, 7
           Bytes({0x62, 0xf1, 0x7c, 0x48, 0x10, 0x02}),                 // vmovups zmm0, [rdx]
           Bytes({0x62, 0xf1, 0x7c, 0x48, 0x58, 0x81, 1, 2, 3, 4}),     // vaddps zmm0, zmm0, [rcx + disp32]
           Bytes({0x62, 0xf3, 0xfd, 0x48, 0x1b, 0xc1, 0x01}),           // vextractf64x4 ymm1, zmm0, 1
           Bytes({0x62, 0xf2, 0x7d, 0x48, 0xb8, 0x0c, 0x87}),           // vfmadd231ps zmm1, zmm0, [rdi + rax*4]
           Bytes({0xd9, 0x2c, 0x24}),                                   // fldcw [rsp]
       })
    EXPECT_EQ(DecodeX86(code).length, code.size()) << Hex(code) << DecodeX86(code).refused;
}

struct Forbidden {
  const char* why;
  std::vector<std::byte> code;
};

std::vector<Forbidden> ForbiddenX86() {
  return {
      {"a system call", Bytes({0x0f, 0x05})},                           // syscall
      {"a system call", Bytes({0x0f, 0x34})},                           // sysenter
      {"a return from the kernel", Bytes({0x0f, 0x07})},                // sysret
      {"a return from the kernel", Bytes({0x48, 0x0f, 0x35})},          // sysexit
      {"a software interrupt", Bytes({0xcd, 0x80})},                    // int 0x80
      {"a software interrupt", Bytes({0xf1})},                          // int1
      {"a far jump", Bytes({0xff, 0x2f})},                              // jmp far [rdi]
      {"a far jump", Bytes({0x48, 0xff, 0x1f})},                        // call far [rdi]
      {"a far jump", Bytes({0xcb})},                                    // retf
      {"a far jump", Bytes({0x48, 0xcf})},                              // iretq
      {"ports", Bytes({0xe4, 0x10})},                                   // in al, 16
      {"ports", Bytes({0xee})},                                         // out dx, al
      {"ports", Bytes({0xf3, 0x6e})},                                   // rep outsb
      {"privileged", Bytes({0xf4})},                                    // hlt
      {"privileged", Bytes({0xfa})},                                    // cli
      {"protection keys", Bytes({0x0f, 0x01, 0xef})},                   // wrpkru
      {"protection keys", Bytes({0x0f, 0x01, 0xd1})},                   // xsetbv
      {"extended state", Bytes({0x0f, 0xae, 0x2f})},                    // xrstor [rdi]
      {"extended state", Bytes({0x48, 0x0f, 0xae, 0x0f})},              // fxrstor64 [rdi]
      {"extended state", Bytes({0xf3, 0x48, 0x0f, 0xae, 0xd8})},        // wrgsbase rax
      {"model-specific", Bytes({0x0f, 0x30})},                          // wrmsr
      {"does not have", Bytes({0x0f, 0x31})},                           // rdtsc
      {"does not have", Bytes({0x0f, 0xa2})},                           // cpuid
      {"does not have", Bytes({0x0f, 0x22, 0xc0})},                     // mov cr0, rax
      {"does not have", Bytes({0xf3, 0x0f, 0x1e, 0xc8})},               // rdsspd eax
      {"does not have", Bytes({0x48, 0x0f, 0x38, 0xf6, 0x07})},         // wrssq [rdi], rax
      {"does not have", Bytes({0xf2, 0x0f, 0x38, 0xf8, 0x07})},         // enqcmd
      {"does not have", Bytes({0xc6, 0xf8, 0x01})},                     // xabort
      {"does not have", Bytes({0x06})},                                 // invalid in 64-bit code
      {"does not have", Bytes({0x8f, 0xe9, 0x78, 0x12, 0xc0})},         // XOP: llwpcb
      {"segments", Bytes({0x8e, 0xd8})},                                // mov ds, eax
      {"fs or gs", Bytes({0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0})},  // mov rax, fs:[0]
      {"all flags", Bytes({0x9d})},                                     // popfq
      {"branch with prefixes", Bytes({0x66, 0xe9, 0, 0, 0, 0})},        // length differs among makers
      {"prefixes before", Bytes({0x48, 0xc5, 0xf8, 0x77})},             // REX before VEX
      {"another kind", Bytes({0x62, 0xf9, 0x7c, 0x48, 0x10, 0x02})},    // EVEX with bits of APX
      {"end of the code", Bytes({0x48, 0x8b})},
      {"end of the code", Bytes({0xe8, 1, 2})},
  };
}

TEST(CheckCode, RefusesWhatLeadsOutOfTheProcess) {
  for (const Forbidden& forbidden : ForbiddenX86()) {
    // After a return, where no branch leads.
    std::vector<std::byte> code = Bytes({0x31, 0xc0, 0xc3});
    code.insert(code.end(), forbidden.code.begin(), forbidden.code.end());
    Result<void> checked = CheckX86(code);
    ASSERT_FALSE(checked) << Hex(forbidden.code) << "wanted: " << forbidden.why;
    EXPECT_EQ(checked.error().kind, ErrorKind::kCorrupt);
    EXPECT_THAT(checked.error().message, HasSubstr(forbidden.why)) << Hex(forbidden.code);
    EXPECT_THAT(checked.error().message, HasSubstr("at 0x1003"));
  }
}

TEST(CheckCode, TheOneIndirectBranchIsACallOfParallelFor) {
  for (const std::vector<std::byte>& code : {Bytes({0xff, 0x57, 0x18}), Bytes({0x41, 0xff, 0x51, 0x18}),
                                             Bytes({0x41, 0xff, 0x54, 0x24, 0x18})})  // call [rdi, r9, r12 + 24]
    EXPECT_TRUE(CheckX86(code)) << Hex(code);
  for (const std::vector<std::byte>& code : {
           Bytes({0xff, 0xd0}),                 // call rax
           Bytes({0xff, 0xe0}),                 // jmp rax
           Bytes({0xff, 0x67, 0x18}),           // jmp [rdi + 24]
           Bytes({0xff, 0x57, 0x10}),           // call [rdi + 16]
           Bytes({0xff, 0x54, 0xc7, 0x18}),     // call [rdi + rax * 8 + 24]
           Bytes({0xff, 0x97, 0x18, 0, 0, 0}),  // call [rdi + 24], with 32 bits of displacement
           Bytes({0xff, 0x15, 0x18, 0, 0, 0}),  // call [rip + 24]
           Bytes({0x3e, 0xff, 0x24, 0xc7}),     // notrack jmp [rdi + rax * 8]
       })
    EXPECT_THAT(Word(CheckX86(code)), HasSubstr("an indirect branch")) << Hex(code);
}

TEST(CheckCode, BytesWithinInstructionsAreNoInstructions) {
  // mov eax, 0x050f; vaddps with a displacement of int 0x80; ret
  EXPECT_TRUE(CheckX86(Bytes({0xb8, 0x0f, 0x05, 0, 0, 0xc5, 0xfc, 0x58, 0x80, 0xcd, 0x80, 0xcd, 0x80, 0xc3})));
}

TEST(CheckCode, BranchesMeetInstructions) {
  // jmp over mov eax, 0x050f
  const std::vector<std::byte> over = Bytes({0xeb, 0x05, 0xb8, 0x0f, 0x05, 0, 0, 0xc3});
  EXPECT_TRUE(CheckX86(over));
  for (const std::vector<std::byte>& code : {
           Bytes({0xeb, 0x01, 0xb8, 0x0f, 0x05, 0, 0, 0xc3}),                 // jmp into the mov, to the syscall in it
           Bytes({0x74, 0x01, 0xb8, 0x0f, 0x05, 0, 0, 0xc3}),                 // je
           Bytes({0xe8, 0x01, 0, 0, 0, 0xb8, 0x0f, 0x05, 0, 0, 0xc3}),        // call
           Bytes({0x0f, 0x8f, 0x01, 0, 0, 0, 0xb8, 0x0f, 0x05, 0, 0, 0xc3}),  // jg
           Bytes({0xe9, 0, 0x10, 0, 0, 0xc3}),                                // jmp out of the segment
           Bytes({0xeb, 0xf0, 0xc3}),                                         // jmp before it
       })
    EXPECT_THAT(Word(CheckX86(code)), HasSubstr("where no instruction begins")) << Hex(code);
  // lea rax, [rip + 1]: the address of the middle of the next instruction; and of data elsewhere
  EXPECT_THAT(Word(CheckX86(Bytes({0x48, 0x8d, 0x05, 1, 0, 0, 0, 0xb8, 0x0f, 0x05, 0, 0, 0xc3}))),
              HasSubstr("the address 0x1008"));
  EXPECT_TRUE(CheckX86(Bytes({0x48, 0x8d, 0x05, 0, 0x10, 0, 0, 0xc3})));
  EXPECT_TRUE(CheckX86(over, {kAddress, kAddress + 2, 0x5000}));
  EXPECT_THAT(Word(CheckX86(over, {kAddress + 3})), HasSubstr("an entry where no instruction begins at 0x1003"));
}

TEST(CheckCode, BranchesBetweenSegmentsMeetInstructions) {
  const std::vector<std::byte> first = Bytes({0xe9, 0xfb, 0x0f, 0, 0}), second = Bytes({0xb8, 0x0f, 0x05, 0, 0, 0xc3});
  CodeSegment segments[] = {{kAddress, first}, {kAddress + 0x1000, second}};
  EXPECT_TRUE(CheckCode(EM_X86_64, segments, {}));
  segments[1].address -= 1;
  EXPECT_FALSE(CheckCode(EM_X86_64, segments, {}));
}

TEST(CheckCode, KnowsWordsOfAarch64) {
  EXPECT_TRUE(CheckAarch64({
      0xd503201f,  // nop
      0xd503245f,  // bti c
      0xd5033bbf,  // dmb ish
      0xd4200020,  // brk #1
      0x14000001,  // b +4
      0x54ffffe0,  // b.eq -4
      0x34ffffc0,  // cbz w0, -8
      0x36ffffa0,  // tbz w0, #0, -12
      0xd63f0100,  // blr x8
      0x00000000,  // udf: fills gaps
      0xd65f03c0,  // ret
  }));
  for (auto [word, why] : {std::pair(0xd4000001u, "a system call"),                   // svc #0
                           std::pair(0xd4000002u, "an exception"),                    // hvc #0
                           std::pair(0xd4000003u, "an exception"),                    // smc #0
                           std::pair(0xd4400000u, "an exception"),                    // hlt #0
                           std::pair(0xd51b4400u, "an access to a system register"),  // msr fpcr, x0
                           std::pair(0xd53bd040u, "an access to a system register"),  // mrs x0, tpidr_el0
                           std::pair(0xd50b7520u, "an access to a system register"),  // ic ivau, x0
                           std::pair(0xd69f03e0u, "a return from the kernel"),        // eret
                           std::pair(0xd61f0100u, "an indirect branch"),              // br x8
                           std::pair(0x17ffffffu, "no instruction begins"),           // b -4, before the segment
                           std::pair(0x54000060u, "no instruction begins")}) {        // b.eq +12, past it
    Result<void> checked = CheckAarch64({word, 0xd65f03c0});
    ASSERT_FALSE(checked) << std::hex << word;
    EXPECT_THAT(checked.error().message, HasSubstr(why));
  }
}

// Whatever the bytes: decoding stays inside them, and says either a length or a reason.
TEST(DecodeX86, SurvivesAnyBytes) {
  Rng rng(77);
  for (int round = 0; round < 200'000; ++round) {
    std::vector<std::byte> code(1 + rng.Below(18));
    for (std::byte& byte : code) byte = static_cast<std::byte>(rng.Below(256));
    const X86Instruction instruction = DecodeX86(code);
    ASSERT_LE(instruction.length, std::min<size_t>(code.size(), 15));
    ASSERT_NE(instruction.length == 0, std::string_view(instruction.refused).empty()) << Hex(code);
  }
}

}  // namespace
}  // namespace hone
