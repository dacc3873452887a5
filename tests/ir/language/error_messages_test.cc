// Each bad input is one file, tests/errors/kernel/NAME.hone, beside the message it must give, NAME.txt: the error's
// kind and its text, place included. Set HONE_WRITE_MESSAGES=1 to write the files anew, and read the difference.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/language/parse.h"

namespace hone {
namespace {

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ErrorMessages, SayPlaceSeenWantedAndNextStep) {
  std::vector<std::filesystem::path> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(HONE_SOURCE_DIR "/tests/errors/kernel"))
    if (entry.path().extension() == ".hone") inputs.push_back(entry.path());
  std::sort(inputs.begin(), inputs.end());
  EXPECT_GT(inputs.size(), 100u);
  for (const std::filesystem::path& input : inputs) {
    Result<Kernel> kernel = ParseKernel(ReadAll(input), input.filename().string());
    std::string message = "no error\n";
    if (!kernel) message = std::string(ErrorKindName(kernel.error().kind)) + ": " + kernel.error().Text() + "\n";
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
