#include "model/files/pickle/pickled_weights.h"

#include <fstream>

#include <caffe2/serialize/inline_container.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include "base/error.h"
#include "base/files.h"
#include "base/random.h"
#include "model/files/pickle/pickle_reader.h"
#include "model/files/weight_files.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::model {
namespace {

using testing::HasSubstr;

// A pickle without type tags, and the tensors whose storages it names.
struct Pickle {
  std::string text;
  std::vector<at::Tensor> tensors;
};

Pickle pickle_of(const c10::IValue& value) {
  Pickle pickle;
  torch::jit::Pickler pickler([&](const char* bytes, size_t count) { pickle.text.append(bytes, count); }, nullptr,
                              nullptr, nullptr, nullptr, false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  pickle.tensors = pickler.tensorData();
  return pickle;
}

// A zip as Python's torch.save writes it: the pickle in data.pkl, storages under data/.
std::string pickled(const c10::IValue& value) {
  const Pickle pickle = pickle_of(value);
  std::string file;
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* bytes, size_t count) {
    file.append(static_cast<const char*>(bytes), count);
    return count;
  });
  writer.writeRecord("data.pkl", pickle.text.data(), pickle.text.size());
  for (size_t i = 0; i < pickle.tensors.size(); ++i) {
    const auto storage = torch::jit::getWriteableTensorData(pickle.tensors[i]);
    writer.writeRecord("data/" + std::to_string(i), storage.data(), storage.sizeInBytes());
  }
  writer.writeEndOfFile();
  return file;
}

c10::Dict<std::string, at::Tensor> tensors() {
  c10::Dict<std::string, at::Tensor> dict;
  const at::Tensor whole = at::arange(24, at::kFloat).view({4, 6});
  dict.insert("plain", whole);
  dict.insert("transposed", whole.t());
  dict.insert("half", at::arange(5, at::kHalf));
  dict.insert("count", at::arange(3, at::kLong));
  return dict;
}

std::string state_dict() {
  return pickled(tensors());
}

// A copy with 1 to 4 bytes changed, and one in four cut off at a random place.
std::string damage(const std::string& good, RandomSequence& random) {
  std::string damaged = good;
  const uint64_t changes = 1 + random.below(4);
  for (uint64_t i = 0; i < changes; ++i) {
    damaged[static_cast<size_t>(random.below(damaged.size()))] = static_cast<char>(random.below(256));
  }
  if (random.below(4) == 0) damaged.resize(static_cast<size_t>(random.below(damaged.size())));
  return damaged;
}

std::string reading_error(const std::filesystem::path& file) {
  return error_of([&] { PickledWeights weights(file); });
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
       std::vector<std::pair<std::string, std::string>>{{"", "not a zip"},
                                                        {"\x80\x02"
                                                         "ccollections\nOrderedDict\n",
                                                         "not a zip"},
                                                        {good.substr(0, good.size() / 2), "cannot be read"},
                                                        {pickled(at::ones({2})), "where the state dict is expected"},
                                                        {pickled(c10::List<int64_t>({1, 2})), "build_intlist"}}) {
    write_file_atomic(file, content);
    EXPECT_THAT(reading_error(file), HasSubstr(message));
  }
  c10::Dict<std::string, int64_t> numbers;
  numbers.insert("a", 1);
  write_file_atomic(file, pickled(numbers));
  EXPECT_THAT(reading_error(file), HasSubstr("where a tensor is expected"));
}

// Any other exception, a crash or a huge allocation fails the test (and the sanitizers see the rest).
TEST(PickleReader, DamagedPicklesAreRefusedOrRead) {
  const std::string good = pickle_of(tensors()).text;
  ASSERT_EQ(read_pickled_tensors(good).size(), 4u);
  RandomSequence random{CounterRandom(7, "pickle")};
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    try {
      read_pickled_tensors(damage(good, random));
    } catch (const std::runtime_error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10'000);
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_THROW(read_pickled_tensors(good.substr(0, length)), std::runtime_error) << length;
  }
}

// A million tuples around nothing, and a list that holds itself: neither runs out of stack nor leaks.
TEST(PickleReader, DeepAndCircularContainersAreRefused) {
  EXPECT_THROW(read_pickled_tensors(")" + std::string(1'000'000, '\x85') + "."), std::runtime_error);
  EXPECT_THROW(read_pickled_tensors("]q" + std::string(1, '\0') + "h" + std::string(1, '\0') + "a."),
               std::runtime_error);
}

// Damage to a tensor's own bytes is read; a tensor never reaches outside its storage.
TEST(PickledWeights, DamagedFilesAreRefusedOrRead) {
  const TemporaryDirectory folder;
  const auto file = folder / "pytorch_model.bin";
  const std::string good = state_dict();
  RandomSequence random{CounterRandom(7, "damage")};
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    write_text(file, damage(good, random));
    refused += reading_error(file) == "no error" ? 0 : 1;
  }
  EXPECT_GT(refused, 250);
}

}  // namespace
}  // namespace draftsmith::model
