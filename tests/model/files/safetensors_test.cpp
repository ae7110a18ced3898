// Safetensors files and shards: what is written is what is read, in every float type.
#include <cstring>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "model/files/safetensors_writer.h"
#include "model/files/weight_files.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

using testing::HasSubstr;

TEST(Safetensors, WrittenTensorsAreReadBackBitForBitInEveryType) {
  const TemporaryDirectory directory;
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    const auto file = directory / stored_dtype_name(type);
    const at::Tensor matrix = random_tensor({3, 5}).to(type);
    const at::Tensor scalar = random_tensor({}).to(type);
    write_safetensors(file, {{"m", matrix, type}, {"s", scalar, type}, {"empty", at::empty({0, 4}), type}});
    const SafetensorsFile read(file);
    EXPECT_EQ(read.tensors().at("m").dtype, stored_dtype_name(type));
    EXPECT_TRUE(at::equal(read.read("m", type), matrix));
    EXPECT_TRUE(at::equal(read.read("s", type), scalar));
    EXPECT_EQ(read.read("empty", type).sizes(), at::IntArrayRef({0, 4}));
    EXPECT_EQ(read.metadata().at("format"), "pt");
  }
}

TEST(Safetensors, MixedTypesAreAlignedAndConvertedOnReading) {
  const TemporaryDirectory directory;
  const at::Tensor odd = random_tensor({3});
  write_safetensors(directory / "f", {{"a", odd, at::kBFloat16}, {"b", odd, at::kFloat}, {"c", odd, at::kHalf}});
  const SafetensorsFile read(directory / "f");
  EXPECT_EQ(read.tensors().at("b").begin, 0);
  for (const auto& [name, entry] : read.tensors()) {
    const size_t width = c10::elementSize(float_type(entry.dtype).value_or(at::kDouble));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(read.bytes(name).data()) % width, 0) << name;
  }
  EXPECT_TRUE(at::equal(read.read("a", at::kFloat), odd.to(at::kBFloat16).to(at::kFloat)));
  EXPECT_EQ(read.read("c", at::kDouble).scalar_type(), at::kDouble);
}

TEST(Safetensors, TensorsThatComeOneAtATimeMakeTheSameFile) {
  const TemporaryDirectory directory;
  const std::map<std::string, at::Tensor> tensors{{"b", random_tensor({3, 2})},
                                                  {"a", random_tensor({4}).to(at::kHalf)}};
  std::vector<TensorPlace> places;
  std::vector<TensorToStore> whole;
  for (const auto& [name, tensor] : tensors) {
    places.push_back({name, tensor.sizes().vec(), tensor.scalar_type()});
    whole.push_back({name, tensor, tensor.scalar_type()});
  }
  write_safetensors(directory / "whole", whole);
  std::vector<std::string> asked;
  write_safetensors(directory / "single", in_file_order(places), [&](const TensorPlace& place) {
    asked.push_back(place.name);
    return tensors.at(place.name);
  });
  EXPECT_EQ(asked, (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(read_file(directory / "single"), read_file(directory / "whole"));
}

TEST(Safetensors, TransposedTensorsAreStoredAsTheyRead) {
  const TemporaryDirectory directory;
  const at::Tensor transposed = random_tensor({4, 3}).t();
  write_safetensors(directory / "f", {{"t", transposed, at::kFloat}});
  EXPECT_TRUE(at::equal(SafetensorsFile(directory / "f").read("t", at::kFloat), transposed));
}

TEST(Safetensors, AValueThatIsNotFiniteIsNeverWritten) {
  const TemporaryDirectory directory;
  at::Tensor bad = random_tensor({4});
  bad[2] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<TensorToStore> tensors = {{"good", random_tensor({2}), at::kFloat},
                                              {"bad.weight", bad, at::kFloat}};
  EXPECT_THAT(error_of<RunError>([&] { write_safetensors(directory / "f", tensors); }),
              testing::AllOf(HasSubstr("bad.weight"), HasSubstr("1 NaN and 0 infinite of 4")));
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  EXPECT_THROW(write_safetensors(directory / "f", {{"large", at::full({1}, 70000.0), at::kHalf}}), RunError);
}

TEST(Safetensors, IntegersAreListedButNotReadAsWeights) {
  const TemporaryDirectory directory;
  write_file_atomic(directory / "f", raw_safetensors(R"({"ids":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})",
                                                     std::string(8, 'x')));
  const SafetensorsFile read(directory / "f");
  EXPECT_EQ(read.tensors().at("ids").dtype, "I64");
  const std::string message = error_of([&] { read.read("ids", at::kFloat); });
  EXPECT_THAT(message, HasSubstr("'ids'"));
  EXPECT_THAT(message, HasSubstr("I64"));
}

TEST(Safetensors, ReadsAHeaderOfOddLength) {
  const TemporaryDirectory directory;
  const float value = 1.5F;
  std::string data(sizeof(value), '\0');
  std::memcpy(data.data(), &value, sizeof(value));
  write_file_atomic(directory / "f",
                    raw_safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}   )", data));
  EXPECT_EQ(SafetensorsFile(directory / "f").read("a", at::kFloat).item<float>(), value);
}

class Shards : public testing::Test {
 protected:
  const TemporaryDirectory directory_;
  const std::vector<TensorToStore> tensors_ = {{"a", random_tensor({10}, 1), at::kFloat},
                                               {"b", random_tensor({20}, 2), at::kFloat},
                                               {"c", random_tensor({10}, 3), at::kFloat},
                                               {"d", random_tensor({1}, 4), at::kFloat}};
};

TEST_F(Shards, AreWrittenWithAnIndexAndReadBack) {
  write_weight_files(directory_.path(), tensors_, 60);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "model-00001-of-00003.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "model.safetensors"));
  const auto index = load_json(directory_ / "model.safetensors.index.json");
  EXPECT_EQ(index["metadata"]["total_size"], 41 * 4);
  EXPECT_EQ(index["weight_map"]["d"], "model-00003-of-00003.safetensors");
  const WeightFiles read(directory_.path());
  ASSERT_EQ(read.files().size(), 3);
  for (const TensorToStore& item : tensors_) {
    EXPECT_TRUE(at::equal(read.stored(item.name), item.tensor)) << item.name;
  }
}

TEST_F(Shards, AreNotUsedWhereOneFileIsEnough) {
  write_weight_files(directory_.path(), tensors_, 41 * 4);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "model.safetensors.index.json"));
  EXPECT_EQ(WeightFiles(directory_.path()).tensors().size(), 4);
}

TEST_F(Shards, MixedUpWithAnotherModelsAreRefused) {
  write_weight_files(directory_.path(), tensors_, 60);
  write_safetensors(directory_ / "model-00002-of-00003.safetensors", {{"other", random_tensor({2}), at::kFloat}});
  const std::string message = error_of([&] { WeightFiles read(directory_.path()); });
  EXPECT_THAT(message, HasSubstr("tensor 'b'"));
  EXPECT_THAT(message, HasSubstr("tensor 'other'"));
  EXPECT_THAT(message, HasSubstr("model-00002-of-00003.safetensors"));
}

TEST_F(Shards, OutsideTheDirectoryAreRefused) {
  for (const std::string file : {"../model.safetensors", "/etc/passwd", "..", ""}) {
    write_json(directory_ / "model.safetensors.index.json", {{"weight_map", {{"a", file}}}});
    EXPECT_THAT(error_of([&] { WeightFiles read(directory_.path()); }), HasSubstr("inside the directory")) << file;
  }
}

TEST_F(Shards, MissingOnesAreNamed) {
  write_weight_files(directory_.path(), tensors_, 60);
  std::filesystem::remove(directory_ / "model-00003-of-00003.safetensors");
  EXPECT_THAT(error_of([&] { WeightFiles read(directory_.path()); }), HasSubstr("model-00003-of-00003.safetensors"));
}

TEST(WeightFiles, ADamagedPickleIsRefusedWithAWayOut) {
  const TemporaryDirectory directory;
  write_file_atomic(directory / "pytorch_model.bin", "PK");
  EXPECT_THAT(error_of([&] { WeightFiles read(directory.path()); }), HasSubstr("save_pretrained"));
}

}  // namespace
}  // namespace draftsmith::model
