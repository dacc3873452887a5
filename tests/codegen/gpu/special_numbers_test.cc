// NaN, infinities, zeros of either sign and the smallest numbers in straight code: of numbers, and of vectors.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "codegen/rules/default_schedule.h"
#include "tests/support/gpu_run.h"
#include "tests/support/special_numbers.h"

namespace hone {
namespace special_numbers_test {

TEST(SpecialNumbersInStraightCode, AreWhatTheReferenceSays) {
  const Target processor = DeviceTarget{
      std::string(kOpenClKind),
      {{"block_threads", "4096"}, {"block_bytes", "1048576"}, {"type", "cpu"}, {"units", "2"}, {"lanes", "16"}}};
  for (const Target& target : {SomeGpu(), processor})
    for (const char* type : {"f32", "f64"})
      for (const SpecialKernel& special : SpecialKernels(type)) {
        const Kernel kernel = Specialize(ParseKernel(special.text).value());
        const Result<straight::Program> program =
            StraightOf(special.text, DefaultSchedule(kernel, target).value(), straight::LimitsOf(ModelMachine(target)));
        ASSERT_TRUE(program) << special.text << ": " << program.error().Text();
        const GpuOutcome outcome =
            RunStraight(special.text, *program, {}, [&](int operand, std::span<std::byte> bytes) {
              const DType of = kernel.tensors[kernel.operands[static_cast<size_t>(operand)]].dtype;
              FillSpecial(of, special.data, static_cast<size_t>(operand), bytes);
            });
        EXPECT_TRUE(outcome.IsRight()) << special.text << ": " << outcome.Text();
      }
}

}  // namespace special_numbers_test
}  // namespace hone
