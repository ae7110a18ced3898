#include "model/files/pickle/pickled_weights.h"

#include <fstream>

#include <caffe2/serialize/inline_container.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include "base/error.h"
#include "base/files.h"
#include "base/random.h"
#include "model/files/weight_files.h"

namespace draftsmith::model {
namespace {

using testing::HasSubstr;

// A zip as Python's torch.save writes it: no type tags, storages under data/.
std::string pickled(const c10::IValue& value) {
  std::string pickle;
  torch::jit::Pickler pickler([&](const char* bytes, size_t count) { pickle.append(bytes, count); }, nullptr, nullptr,
                              nullptr, nullptr, false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  std::string file;
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* bytes, size_t count) {
    file.append(static_cast<const char*>(bytes), count);
    return count;
  });
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  for (size_t i = 0; i < pickler.tensorData().size(); ++i) {
    const auto storage = torch::jit::getWriteableTensorData(pickler.tensorData()[i]);
    writer.writeRecord("data/" + std::to_string(i), storage.data(), storage.sizeInBytes());
  }
  writer.writeEndOfFile();
  return file;
}

std::string state_dict() {
  c10::Dict<std::string, at::Tensor> dict;
  const at::Tensor whole = at::arange(24, at::kFloat).view({4, 6});
  dict.insert("plain", whole);
  dict.insert("transposed", whole.t());
  dict.insert("half", at::arange(5, at::kHalf));
  dict.insert("count", at::arange(3, at::kLong));
  return pickled(dict);
}

std::string error_of(const std::filesystem::path& file) {
  try {
    PickledWeights weights(file);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(PickledWeights, TensorsAreReadAsTheyWereSaved) {
  const TemporaryDirectory folder;
  write_file_atomic(folder / "pytorch_model.bin", state_dict());
  const WeightFiles weights(folder.path());
  const at::Tensor whole = at::arange(24, at::kFloat).view({4, 6});
  EXPECT_TRUE(weights.stored("plain").equal(whole));
  EXPECT_TRUE(weights.stored("transposed").equal(whole.t()));
  EXPECT_EQ(weights.entry("transposed").shape, (std::vector<int64_t>{6, 4}));
  EXPECT_EQ(weights.entry("half").dtype, "F16");
  EXPECT_FALSE(float_type(weights.entry("count").dtype));
  EXPECT_EQ(weights.bytes("plain").size(), 96);
}

TEST(PickledWeights, WhatIsNoStateDictIsAnError) {
  const TemporaryDirectory folder;
  const auto file = folder / "pytorch_model.bin";
  const std::string good = state_dict();
  for (const auto& [content, message] :
       std::vector<std::pair<std::string, std::string>>{{"", "no zip"},
                                                        {"\x80\x02"
                                                         "ccollections\nOrderedDict\n",
                                                         "no zip"},
                                                        {good.substr(0, good.size() / 2), "cannot be read"},
                                                        {pickled(at::ones({2})), "where the state dict is expected"},
                                                        {pickled(c10::List<int64_t>({1, 2})), "build_intlist"}}) {
    write_file_atomic(file, content);
    EXPECT_THAT(error_of(file), HasSubstr(message));
  }
  c10::Dict<std::string, int64_t> numbers;
  numbers.insert("a", 1);
  write_file_atomic(file, pickled(numbers));
  EXPECT_THAT(error_of(file), HasSubstr("where a tensor is expected"));
}

// A damaged file is refused or, where the damage is in a tensor's bytes, read; it never reaches outside its storage.
TEST(PickledWeights, DamagedFilesAreRefusedOrRead) {
  const TemporaryDirectory folder;
  const auto file = folder / "pytorch_model.bin";
  const std::string good = state_dict();
  RandomSequence random{CounterRandom(7, "damage")};
  int refused = 0;
  for (int i = 0; i < 60; ++i) {
    std::string damaged = good;
    damaged[static_cast<size_t>(random.below(damaged.size()))] = static_cast<char>(random.below(256));
    std::ofstream(file, std::ios::binary) << damaged;
    refused += error_of(file).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 5);
}

}  // namespace
}  // namespace draftsmith::model
