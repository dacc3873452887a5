#include "network/onnx/model_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "tests/support/temporary_directory.h"

namespace hone::model_file_test {
namespace {

constexpr size_t kSize = 300'000;

class ModelFiles : public ::testing::Test {
 protected:
  ModelFiles() {
    for (size_t i = 0; i < kSize; ++i) bytes_ += static_cast<char>(i * 7 % 251);
    Write(path_, bytes_);
  }
  static void Write(const std::string& path, const std::string& bytes) { std::ofstream(path) << bytes; }
  static std::string_view Text(const std::shared_ptr<const void>& read, size_t size) {
    return {static_cast<const char*>(read.get()), size};
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "m.onnx";
  std::string bytes_;
};

TEST_F(ModelFiles, PartsAreReadWhetherItIsMappedOrNot) {
  const std::shared_ptr<ModelFile> file = *ModelFile::Open(path_);
  ASSERT_EQ(file->bytes(), bytes_);
  const std::string_view part = file->bytes().substr(1001, 70'001);  // anywhere
  for (int round = 0; round < 3; ++round) {
    const Result<std::shared_ptr<const void>> read = file->Read(part);
    ASSERT_TRUE(read) << read.error().Text();
    EXPECT_EQ(Text(*read, part.size()), std::string_view(bytes_).substr(1001, 70'001));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(read->get()) % 64, 0u);
    if (round == 0) file->Unmap();
    if (round == 1) file->KeepNoMemory();
  }
}

TEST_F(ModelFiles, CopiesThatAreHeldAtOnceAreApart) {
  const std::shared_ptr<ModelFile> file = *ModelFile::Open(path_);
  const auto first = *file->Read(file->bytes().substr(0, 100)), second = *file->Read(file->bytes().substr(100, 100));
  EXPECT_EQ(Text(first, 100), bytes_.substr(0, 100));
  EXPECT_EQ(Text(second, 100), bytes_.substr(100, 100));
}

TEST_F(ModelFiles, ItIsMappedAgainWhereItWas) {
  const std::shared_ptr<ModelFile> file = *ModelFile::Open(path_);
  const char* const at = file->bytes().data();
  file->Unmap();
  ASSERT_TRUE(file->Map());
  EXPECT_EQ(file->bytes().data(), at);
  EXPECT_EQ(file->bytes(), bytes_);
}

TEST_F(ModelFiles, WhatWasCutShortIsAnErrorAndNoSignal) {
  const std::shared_ptr<ModelFile> file = *ModelFile::Open(path_);
  const std::string_view part = file->bytes().substr(200'000, 1000);
  file->Unmap();
  ASSERT_EQ(truncate(path_.c_str(), 100'000), 0);
  const Result<std::shared_ptr<const void>> read = file->Read(part);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().Text(), path_ + ": it was cut short since it was opened; open it again");
  EXPECT_FALSE(file->Map());
}

TEST_F(ModelFiles, WhatWasWrittenOverIsNotTaken) {
  const std::shared_ptr<ModelFile> file = *ModelFile::Open(path_);
  file->Unmap();
  usleep(20'000);  // the clock of files ticks slowly
  Write(path_, std::string(kSize, 'x'));
  const Result<std::shared_ptr<const void>> read = file->Read(file->bytes().substr(5, 100));
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().Text().find("it was changed since it was opened"), std::string::npos) << read.error().Text();
  EXPECT_FALSE(file->Map());
}

TEST_F(ModelFiles, AnotherFileOfItsNameChangesNothing) {
  const std::shared_ptr<ModelFile> file = *ModelFile::Open(path_);
  file->Unmap();
  Write(path_ + ".new", std::string(kSize, 'x'));
  ASSERT_EQ(rename((path_ + ".new").c_str(), path_.c_str()), 0);
  EXPECT_EQ(Text(*file->Read(file->bytes().substr(5, 100)), 100), bytes_.substr(5, 100));
  EXPECT_TRUE(file->Map());
}

TEST_F(ModelFiles, OnlyPartsOfItAreHeld) {
  const std::shared_ptr<ModelFile> file = *ModelFile::Open(path_);
  EXPECT_TRUE(file->Holds(file->bytes()));
  EXPECT_TRUE(file->Holds(file->bytes().substr(kSize)));
  EXPECT_FALSE(file->Holds(bytes_));
  EXPECT_FALSE(file->Holds({file->bytes().data(), kSize + 1}));
  EXPECT_FALSE(file->Holds({file->bytes().data() - 1, 2}));
}

TEST_F(ModelFiles, AnEmptyFileHasNoBytes) {
  Write(path_, "");
  const std::shared_ptr<ModelFile> file = *ModelFile::Open(path_);
  EXPECT_EQ(file->bytes(), "");
  EXPECT_TRUE(file->Map());
  file->Unmap();
}

TEST_F(ModelFiles, FoldersAreRefused) {
  const auto opened = ModelFile::Open(directory_.path());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().Text(), directory_.path() + ": wanted a file");
}

}  // namespace
}  // namespace hone::model_file_test
