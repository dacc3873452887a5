// Each schedule that must be refused is one file, tests/errors/schedule/NAME.schedule, beside the message that it must
// give, schedule_NAME.txt: whoever refuses it first, the reader, the steps, lowering or emission. Its first line names
// the kernel. Set HONE_WRITE_MESSAGES=1 to write the messages anew, and read the difference.
#include <gtest/gtest.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "codegen/llvm/emitter.h"
#include "codegen/llvm/object.h"
#include "codegen/lower/lower.h"
#include "ir/graph/print.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "ir/schedule/apply.h"
#include "ir/schedule/schedule.h"

namespace hone {
namespace {

constexpr std::string_view kKernelLine = "# kernel: ";

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Result<void> Refusal(const Kernel& kernel, const std::string& text, const Target& target, ObjectCompiler& compiler) {
  Schedule schedule = HONE_TRY(ParseSchedule(text));
  const std::string before = PrintKernel(kernel);
  Result<ScheduledKernel> applied = ApplySchedule(kernel, schedule);
  EXPECT_EQ(PrintKernel(kernel), before);
  LoopProgram program = HONE_TRY(Lower(HONE_TRY(std::move(applied))));
  llvm::LLVMContext context;
  HONE_TRY(EmitModule(program, *target.cpu(), compiler, context));
  return {};
}

TEST(ScheduleMessages, SayStepSeenAndWanted) {
  const Target target = ParseTarget("avx512 cpu=sapphirerapids l1=49152 l2=2097152").value();
  Result<std::unique_ptr<ObjectCompiler>> compiler = ObjectCompiler::Open(*target.cpu());
  ASSERT_TRUE(compiler) << compiler.error().Text();
  std::vector<std::filesystem::path> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(HONE_SOURCE_DIR "/tests/errors/schedule"))
    if (entry.path().extension() == ".schedule") inputs.push_back(entry.path());
  std::sort(inputs.begin(), inputs.end());
  EXPECT_GT(inputs.size(), 100u);
  for (const std::filesystem::path& input : inputs) {
    const std::string text = ReadAll(input);
    ASSERT_TRUE(text.starts_with(kKernelLine)) << input;
    Result<Kernel> kernel =
        ParseKernel(std::string_view(text).substr(kKernelLine.size(), text.find('\n') - kKernelLine.size()));
    ASSERT_TRUE(kernel) << input << ": " << kernel.error().Text();
    std::string message = "no error\n";
    if (Result<void> done = Refusal(Specialize(*std::move(kernel)), text, target, **compiler); !done)
      message = std::string(ErrorKindName(done.error().kind)) + ": " + done.error().Text() + "\n";
    std::filesystem::path expected = input;
    expected.replace_extension(".txt");
    if (std::getenv("HONE_WRITE_MESSAGES")) std::ofstream(expected, std::ios::binary) << message;
    EXPECT_EQ(message, ReadAll(expected)) << input;
    EXPECT_NE(message, "no error\n") << input;
    EXPECT_LT(message.size(), 700u) << input;
  }
}

}  // namespace
}  // namespace hone
