// Any text is a schedule that prints and reads back to itself, or an error with a place; and applying and lowering it
// to a kernel ends in a program or a refusal.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "ir/schedule/apply.h"
#include "ir/schedule/schedule.h"
#include "ir/schedule/schedule_cases.h"
#include "tests/fuzz/grow_text.h"

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  static constexpr hone::Brackets kBrackets[] = {
      {"inline xp\n", ""}, {"split y.n", " 2\n"}, {" 2", ""}, {".0", ""}, {"[", "]"}};
  return hone::GrowText(data, size, max_size, seed, hone::HostileReader::kSchedule, kBrackets);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hone;
  static const Kernel kKernels[] = {
      Specialize(ParseKernel("conv2d(C=6,H=7,W=9,O=10,R=3,S=3,pad=1,const=1)+bias+relu").value()),
      Specialize(ParseKernel("softmax(M=5,N=37)").value()),
  };
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // The same of a text with cases; and cases that cover a range are checked at sizes within it.
  static const Kernel kRange = Specialize(ParseKernel("dense(M=1..16,N=10,K=7,const=1)").value());
  if (Result<ScheduleCases> cases = ParseScheduleCases(text); !cases) {
    if (cases.error().where.empty()) std::abort();
  } else {
    Result<ScheduleCases> again = ParseScheduleCases(PrintScheduleCases(*cases));
    if (!again || !(*again == *cases)) std::abort();
    if (Result<int> by = FindCaseSize(kRange, *cases)) {
      const std::vector<std::vector<int64_t>> checked = SizesToCheck(kRange, text).value();
      for (const std::vector<int64_t>& sizes : checked)
        if (!AtSizes(kRange, sizes)) std::abort();
      for (const ScheduleCase& scheduled : cases->cases)
        (void)ApplySchedule(KernelOfCase(kRange, *by, scheduled), scheduled.steps);
    }
  }
  Result<Schedule> schedule = ParseSchedule(text);
  if (!schedule) {
    if (schedule.error().where.empty()) std::abort();
    return 0;
  }
  Result<Schedule> again = ParseSchedule(PrintSchedule(*schedule));
  if (!again || !(*again == *schedule)) std::abort();
  for (const Kernel& kernel : kKernels) {
    Result<ScheduledKernel> applied = ApplySchedule(kernel, *schedule);
    if (!applied && applied.error().message.empty()) std::abort();
  }
  return 0;
}
