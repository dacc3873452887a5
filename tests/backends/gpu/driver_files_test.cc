// Which drivers are told apart, and how hone-device-runner is made to use some of them.
#include "backends/gpu/driver_files.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "tests/support/temporary_directory.h"

namespace hone::driver_files_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A variable as a test wants it, until its end.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

void Touch(const std::string& path) { std::ofstream(path) << "libdriver.so\n"; }

TEST(DriverFiles, OpenClsAreInTheDirectoryThatItsLoaderReads) {
  const TemporaryDirectory directory;
  for (const char* name : {"/b.icd", "/a.icd", "/readme.txt"}) Touch(directory.path() + name);
  {
    const Variable vendors("OCL_ICD_VENDORS", directory.path());
    EXPECT_THAT(FindDriverFiles("opencl"), ElementsAre(directory.path() + "/a.icd", directory.path() + "/b.icd"));
  }
  {
    const Variable one("OCL_ICD_VENDORS", directory.path() + "/b.icd");
    EXPECT_THAT(FindDriverFiles("opencl"), ElementsAre(directory.path() + "/b.icd"));
  }
  const Variable nowhere("OCL_ICD_VENDORS", "/nonexistent");
  EXPECT_THAT(FindDriverFiles("opencl"), IsEmpty());
}

TEST(DriverFiles, VulkansAreAsItsVariablesSay) {
  const Variable files("VK_DRIVER_FILES", "/x/a.json:/y/b.json");
  EXPECT_THAT(FindDriverFiles("vulkan"), ElementsAre("/x/a.json", "/y/b.json"));
  EXPECT_THAT(FindDriverFiles("cuda"), IsEmpty());
  const std::string one = "/x/a.json";
  EXPECT_THAT(UseDriverFiles("vulkan", {&one, 1}),
              ElementsAre("VK_DRIVER_FILES=/x/a.json", "VK_ICD_FILENAMES=/x/a.json"));
}

TEST(DriverFiles, OpenClsLoaderIsPointedToLinks) {
  const TemporaryDirectory directory;
  for (const char* name : {"/a.icd", "/b.icd", "/c.icd"}) Touch(directory.path() + name);
  const std::vector<std::string> some{directory.path() + "/a.icd", directory.path() + "/c.icd"};
  const std::vector<std::string> use = UseDriverFiles("opencl", some);
  ASSERT_EQ(use.size(), 1u);
  const size_t equals = use[0].find('=');
  const Variable told(use[0].substr(0, equals).c_str(), use[0].substr(equals + 1));
  const Variable vendors("OCL_ICD_VENDORS", directory.path());
  const std::string own = directory.path() + "/own";
  std::filesystem::create_directory(own);
  for (int again = 0; again < 2; ++again) {
    PointLoaderToDriverFiles(own);
    std::vector<std::string> seen;
    for (const std::string& file : FindDriverFiles("opencl")) seen.push_back(std::filesystem::read_symlink(file));
    EXPECT_THAT(seen, ElementsAre(some[0], some[1]));
  }
}

}  // namespace hone::driver_files_test
