#include "network/onnx/large_tensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>

#include "network/onnx/model_in_place.h"
#include "network/onnx/onnx_model.h"
#include "tests/network/model_files.h"
#include "tests/support/temporary_directory.h"

namespace hone::large_tensors_test {
namespace {

std::string Bytes(size_t count, char first) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(first + static_cast<char>(i * 7 % 251));
  return bytes;
}

// Elements of u8, so that a tensor has as many bytes as its shape says: small ones between large ones, and one that is
// larger than the pieces of memory that others share.
const std::vector<size_t> kSizes = {3, 5000, 0, 1024, 1023, (size_t{16} << 20) + 77, 1 << 20, 12};

ModelFileBuilder WithTensors(const std::vector<size_t>& sizes = kSizes) {
  ModelFileBuilder file;
  file.Input("x", {2}).Output("y");
  file.Node("Relu", {"x"}, {"y"});
  for (size_t i = 0; i < sizes.size(); ++i)
    file.Raw("t" + std::to_string(i), {static_cast<int64_t>(sizes[i])}, 2, Bytes(sizes[i], static_cast<char>(i)));
  return file;
}

std::string Varint(size_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += static_cast<char>((value & 0x7f) | 0x80);
  return text + static_cast<char>(value);
}
// A field that holds bytes, as messages are written.
std::string Field(int number, const std::string& body) {
  return Varint(static_cast<size_t>(number) << 3 | 2) + Varint(body.size()) + body;
}

TEST(LargeTensors, AreReadAsTheyAreWritten) {
  const Result<OnnxModel> model = ParseOnnx(WithTensors().Bytes(), {"m.onnx", ""});
  ASSERT_TRUE(model) << model.error().Text();
  ASSERT_EQ(model->initializers.size(), kSizes.size());
  for (size_t i = 0; i < kSizes.size(); ++i) {
    EXPECT_EQ(model->initializers[i].name, "t" + std::to_string(i));
    const HostTensor& tensor = *model->initializers[i].tensor;
    EXPECT_TRUE(tensor.data == TensorBytes(Bytes(kSizes[i], static_cast<char>(i)))) << i;
  }
}

TEST(LargeTensors, AreNotLeftInTheMessage) {
  const std::string bytes = WithTensors().Bytes();
  const std::optional<CutModel> cut = CutLargeTensors(bytes);
  ASSERT_TRUE(cut);
  EXPECT_LT(cut->rest.size(), 2000u);
  std::vector<int> positions;
  for (const auto& [position, elements] : cut->elements) {
    positions.push_back(position);
    EXPECT_EQ(elements.size(), kSizes[static_cast<size_t>(position)]);
  }
  EXPECT_EQ(positions, (std::vector<int>{1, 3, 5, 6}));
  EXPECT_FALSE(CutLargeTensors(cut->rest));  // nothing is left to take out
}

// Kernels read elements in vectors and numbers at their alignment; a file has them anywhere.
TEST(LargeTensors, AreAligned) {
  const Result<OnnxModel> model = ParseOnnx(WithTensors().Bytes(), {"m.onnx", ""});
  ASSERT_TRUE(model) << model.error().Text();
  for (size_t i : {1, 3, 5, 6})
    EXPECT_EQ(reinterpret_cast<uintptr_t>(model->initializers[i].tensor->data.data()) % 64, 0u) << i;
}

TEST(LargeTensors, OfAnotherSizeThanTheirShapeSaysAreRefused) {
  ModelFileBuilder file;
  file.Input("x", {2}).Output("y").Raw("w", {5001}, 2, Bytes(5000, 1));
  file.Node("Relu", {"x"}, {"y"});
  const Result<OnnxModel> model = ParseOnnx(file.Bytes(), {"m.onnx", ""});
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().Text(), "m.onnx: initialiser w: it has 5000 bytes, its shape 5001 of uint8 wants 5001");
}

// What protobuf would make of fields that are there twice is its to say.
TEST(LargeTensors, StayWhereFieldsAreThereTwice) {
  const std::string raw = Field(9, Bytes(2000, 1));
  const std::string graph = Field(7, Field(5, raw));
  EXPECT_TRUE(CutLargeTensors(graph));
  EXPECT_FALSE(CutLargeTensors(graph + graph));
  EXPECT_FALSE(CutLargeTensors(Field(7, Field(5, raw + raw))));
}

TEST(LargeTensors, StayInFilesThatAreCutShortOrHaveGroups) {
  const std::string graph = Field(7, Field(5, Field(9, Bytes(2000, 1))) + Field(2, "name"));
  for (size_t size = 0; size < graph.size(); ++size) EXPECT_FALSE(CutLargeTensors(graph.substr(0, size))) << size;
  const std::string group = Varint(1 << 3 | 3) + Varint(1 << 3 | 4);
  EXPECT_FALSE(CutLargeTensors(graph + group));
  EXPECT_FALSE(CutLargeTensors(graph + std::string(11, '\xff')));  // a number that does not end
}

// A group makes a file protobuf's alone, which skips it: the same model, read past the scan and by it.
TEST(LargeTensors, AreWhatProtobufReadsWhateverTheFieldsAre) {
  const std::string group = Varint(200 << 3 | 3) + Varint(200 << 3 | 4);
  std::mt19937 random(7);
  auto pick = [&](unsigned count) { return random() % count; };
  auto number = [](int field, size_t value) { return Varint(static_cast<size_t>(field) << 3) + Varint(value); };
  auto tensor = [&] {
    const size_t size = std::vector<size_t>{0, 5, 1023, 1024, 5000}[pick(5)];
    std::string bytes = number(1, size + (pick(8) == 0)) + number(2, 2);
    std::vector<std::string> more = {Field(8, "t" + std::to_string(pick(100))), Field(9, Bytes(size, 1))};
    if (pick(6) == 0) more.push_back(Field(9, Bytes(size, 2)));   // the last one wins
    if (pick(6) == 0) more.push_back(Field(77, Bytes(2000, 3)));  // unknown
    if (pick(9) == 0) more.push_back(number(9, 4));               // of another wire type
    if (pick(9) == 0) more.push_back(Field(9, Bytes(size, 4)).substr(0, 1000));
    std::shuffle(more.begin(), more.end(), random);
    for (const std::string& each : more) bytes += each;
    return bytes;
  };
  auto graph = [&] {
    std::string bytes = Field(1, Field(1, "x") + Field(2, "y") + Field(4, "Relu"));
    for (unsigned count = pick(4); count > 0; --count) bytes += Field(5, tensor());
    if (pick(6) == 0) bytes += Field(15, tensor());
    return bytes + Field(2, "g");
  };
  int read = 0, cut = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string file = number(1, 8) + Field(7, graph());
    if (pick(8) == 0) file += Field(7, graph());  // protobuf makes one of the two
    file += Field(8, number(2, 17));
    if (pick(8) == 0) file.resize(pick(static_cast<unsigned>(file.size())));
    const Result<OnnxModel> scanned = ParseOnnx(file, {"m.onnx", ""}), plain = ParseOnnx(file + group, {"m.onnx", ""});
    ASSERT_EQ(scanned.has_value(), plain.has_value()) << (scanned ? plain : scanned).error().Text();
    ASSERT_FALSE(CutLargeTensors(file + group));
    if (!scanned) continue;
    ++read;
    cut += CutLargeTensors(file).has_value();
    ASSERT_EQ(scanned->initializers.size(), plain->initializers.size());
    for (size_t i = 0; i < plain->initializers.size(); ++i) {
      const OnnxTensor &a = scanned->initializers[i], &b = plain->initializers[i];
      ASSERT_EQ(a.name, b.name);
      ASSERT_EQ(a.tensor->shape, b.tensor->shape);
      ASSERT_TRUE(a.tensor->data == b.tensor->data);
    }
  }
  EXPECT_GT(read, 500);
  EXPECT_GT(cut, 200);
}

const std::vector<size_t> kSizesInPlace = {3, 5000, 65'535, 65'536, 70'001, 0};
bool IsLarge(size_t i) { return kSizesInPlace[i] >= 65'536; }

class TensorsInPlace : public ::testing::Test {
 protected:
  TensorsInPlace() {
    std::ofstream(path_, std::ios::binary) << WithTensors(kSizesInPlace).Bytes();
    Result<ModelInPlace> read = ReadOnnxInPlace(path_);
    EXPECT_TRUE(read) << (read ? "" : read.error().Text());
    if (read) read_ = *std::move(read);
  }
  void ExpectElements() const {
    for (size_t i = 0; i < kSizesInPlace.size(); ++i)
      EXPECT_TRUE(Data(i) == TensorBytes(Bytes(kSizesInPlace[i], static_cast<char>(i)))) << i;
  }
  const TensorBytes& Data(size_t i) const { return read_.model.initializers.at(i).tensor->data; }

  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "m.onnx";
  ModelInPlace read_;
};

TEST_F(TensorsInPlace, LargeOnesAreInTheFileAndSmallOnesInMemory) {
  ExpectElements();
  for (size_t i = 0; i < kSizesInPlace.size(); ++i) EXPECT_EQ(read_.file->Holds(Data(i)), IsLarge(i)) << i;
}

TEST_F(TensorsInPlace, ThatAreCopiedNeedNoFile) {
  ASSERT_TRUE(read_.tensors.Make());
  read_.file->Unmap();
  ExpectElements();
}

TEST_F(TensorsInPlace, ThatAreForgottenHaveNoElements) {
  read_.tensors.Forget();
  read_.file->Unmap();
  for (size_t i = 0; i < kSizesInPlace.size(); ++i) EXPECT_EQ(Data(i).size(), IsLarge(i) ? 0 : kSizesInPlace[i]) << i;
}

TEST(TensorBytes, ThatAreSharedOutliveWhoMadeThem) {
  auto memory = std::make_shared<std::string>("elements");
  TensorBytes bytes(memory, std::string_view(*memory).substr(0, 4));
  const TensorBytes copy = bytes;
  bytes = TensorBytes(std::string("other"));
  memory.reset();
  EXPECT_EQ(copy.view(), "elem");
  EXPECT_EQ(bytes.view(), "other");
}

}  // namespace
}  // namespace hone::large_tensors_test
