// Files of weights: what is written is what is read, in every float type; shards; pickles, hostile ones too.
#include "model/files/weight_files.h"

#include <limits>

#include <caffe2/serialize/inline_container.h>
#include <gmock/gmock.h>

#include "base/files.h"
#include "base/json.h"
#include "base/random.h"
#include "model/files/checkpoint.h"
#include "model/files/write_weights.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/support/captured_log.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

using namespace std::string_literals;

TEST(Safetensors, WrittenTensorsAreReadBackBitForBitInEveryType) {
  const TemporaryDirectory directory;
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    const auto file = directory / stored_dtype_name(type);
    const at::Tensor matrix = random_tensor({3, 5}).to(type), scalar = random_tensor({}).to(type);
    write_safetensors(file, {{"m", matrix, type}, {"s", scalar, type}, {"empty", at::empty({0, 4}), type}});
    const SafetensorsFile read(file);
    EXPECT_EQ(read.tensors().at("m").dtype, stored_dtype_name(type));
    EXPECT_TRUE(at::equal(read.stored("m").to(type), matrix));
    EXPECT_TRUE(at::equal(read.stored("s").to(type), scalar));
    EXPECT_EQ(read.stored("empty").to(type).sizes(), at::IntArrayRef({0, 4}));
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
  EXPECT_TRUE(at::equal(read.stored("a").to(at::kFloat), odd.to(at::kBFloat16).to(at::kFloat)));
  EXPECT_EQ(read.stored("c").to(at::kDouble).scalar_type(), at::kDouble);
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
  for (const TensorToStore& item : tensors_) EXPECT_TRUE(at::equal(read.stored(item.name), item.tensor)) << item.name;
}

TEST_F(Shards, MixedUpWithAnotherModelsAreRefused) {
  write_weight_files(directory_.path(), tensors_, 60);
  write_safetensors(directory_ / "model-00002-of-00003.safetensors", {{"other", random_tensor({2}), at::kFloat}});
  EXPECT_THAT(error_of([&] { WeightFiles read(directory_.path()); }),
              AllOf(HasSubstr("tensor 'b'"), HasSubstr("model-00002-of-00003.safetensors")));
}

TEST_F(Shards, OutsideTheDirectoryAreRefused) {
  for (const std::string file :
       {"../model.safetensors", "/etc/passwd", "..", "", "sub/../../x.safetensors", "sub/.."}) {
    write_json(directory_ / "model.safetensors.index.json", {{"weight_map", {{"a", file}}}});
    EXPECT_THAT(error_of([&] { WeightFiles read(directory_.path()); }), HasSubstr("inside the directory")) << file;
  }
}

// An overlay holds new values of two tensors; the first shard still has them, and one that nobody names. What an
// overlay is called must not matter.
TEST_F(Shards, AreReadWhereTheIndexPlacesTensors) {
  const at::Tensor wide = random_tensor({3, 7}, 9), b = random_tensor({20}, 10);
  for (const std::string overlay :
       {"a.safetensors", "zz.safetensors", "sub/model-1.safetensors", "./x/../y.bin.safetensors"}) {
    const TemporaryDirectory folder;
    make_directories(folder / "sub");
    write_safetensors(folder / "model-1.safetensors", {tensors_[0], tensors_[1], {"old", b, at::kFloat}});
    write_safetensors(folder / "model-2.safetensors", {tensors_[2], tensors_[3]});
    write_safetensors((folder / overlay).lexically_normal(), {{"a", wide, at::kFloat}, {"b", b, at::kFloat}});
    write_json(folder / "model.safetensors.index.json",
               {{"weight_map",
                 {{"a", overlay}, {"b", overlay}, {"c", "model-2.safetensors"}, {"d", "./model-2.safetensors"}}}});
    const CapturedLog log;
    const WeightFiles read(folder.path());
    EXPECT_TRUE(read.stored("a").equal(wide)) << overlay;
    EXPECT_TRUE(read.stored("b").equal(b)) << overlay;
    EXPECT_TRUE(read.stored("c").equal(tensors_[2].tensor)) << overlay;
    EXPECT_FALSE(read.contains("old"));
    write_json(folder / "model.safetensors.index.json",
               {{"weight_map", {{"c", "model-2.safetensors"}, {"b", "model-1.safetensors"}, {"a", overlay}}}});
    EXPECT_TRUE(WeightFiles(folder.path()).stored("b").equal(tensors_[1].tensor)) << overlay;
    EXPECT_GE(log.warnings(), 1) << log.text();
    copy_model(folder.path(), folder / "copy");
    EXPECT_TRUE(WeightFiles(folder / "copy").stored("a").equal(wide)) << overlay;
  }
}

// Of a single file and an index one is read, and one sentence says which.
TEST_F(Shards, BesideASingleFileAreReadIfItLacksTensors) {
  const at::Tensor other = random_tensor({10}, 11);
  struct Beside {
    std::vector<TensorToStore> single;
    bool shards;
    const char* message;
    at::Tensor a;
  };
  std::vector<TensorToStore> whole = tensors_;
  whole[0].tensor = other;
  for (const Beside& one :
       std::vector<Beside>{{whole, true, "with all of its tensors", other},
                           {{{"a", other, at::kFloat}}, true, "lacks 3 of the 4", tensors_[0].tensor},
                           {{{"x", other, at::kFloat}}, true, "lacks 4 of the 4", tensors_[0].tensor},
                           {{{"a", other, at::kFloat}}, false, "not all of its shards", other}}) {
    const TemporaryDirectory folder;
    write_weight_files(folder.path(), tensors_, 60);
    if (!one.shards) std::filesystem::remove(folder / "model-00002-of-00003.safetensors");
    write_safetensors(folder / "model.safetensors", one.single);
    const CapturedLog log;
    EXPECT_TRUE(WeightFiles(folder.path()).stored("a").equal(one.a)) << one.message;
    EXPECT_THAT(log.text(), HasSubstr(one.message));
    EXPECT_EQ(log.warnings(), 1) << log.text();
  }
}

TEST_F(Shards, MissingOnesAreNamed) {
  write_weight_files(directory_.path(), tensors_, 60);
  std::filesystem::remove(directory_ / "model-00003-of-00003.safetensors");
  EXPECT_THAT(error_of([&] { WeightFiles read(directory_.path()); }), HasSubstr("model-00003-of-00003.safetensors"));
}

// The opcodes of a short string.
std::string string(const std::string& text) {
  return "X" + std::string(1, static_cast<char>(text.size())) + "\x00\x00\x00"s + text;
}

// The opcodes with which torch.save describes a tensor of a storage; `shape` and `strides` are opcodes of tuples.
std::string tensor(const std::string& storage, char record, const std::string& shape, const std::string& strides) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + string("storage") + "ctorch\n" + storage + "\n" + string({record}) +
         string("cpu") + "K\x18tQK\x00"s + shape + strides + "\x89" + "ccollections\nOrderedDict\n)RtR";
}

// A pickle, and the tensors whose storages it names.
struct Pickle {
  std::string text;
  std::vector<at::Tensor> storages;
};

// A zip as torch.save writes it: the pickle in data.pkl, storages under data/.
std::string zip_of(const Pickle& pickle, bool compressed = false) {
  std::string file;
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* bytes, size_t count) {
    file.append(static_cast<const char*>(bytes), count);
    return count;
  });
  writer.writeRecord("data.pkl", pickle.text.data(), pickle.text.size(), compressed);
  for (size_t i = 0; i < pickle.storages.size(); ++i) {
    writer.writeRecord("data/" + std::to_string(i), pickle.storages[i].const_data_ptr(), pickle.storages[i].nbytes());
  }
  writer.writeEndOfFile();
  return file;
}

Pickle state_dict() {
  return {"\x80\x02}(" + string("plain") + tensor("FloatStorage", '0', "K\x04K\x06\x86", "K\x06K\x01\x86") +
              string("transposed") + tensor("FloatStorage", '0', "K\x06K\x04\x86", "K\x01K\x06\x86") + string("half") +
              tensor("HalfStorage", '1', "K\x05\x85", "K\x01\x85") + string("count") +
              tensor("LongStorage", '2', "K\x03\x85", "K\x01\x85") + "u.",
          {at::arange(24, at::kFloat), at::arange(5, at::kHalf), at::arange(3, at::kLong)}};
}

TEST_F(Shards, PickledOnesFollowTheirIndexToo) {
  write_text(directory_ / "one.bin", zip_of(state_dict()));
  write_text(directory_ / "two.bin", zip_of(state_dict()));
  write_json(directory_ / "pytorch_model.bin.index.json",
             {{"weight_map", {{"plain", "one.bin"}, {"half", "two.bin"}}}});
  const CapturedLog log;
  const WeightFiles read(directory_.path());
  EXPECT_EQ(read.tensors().size(), 2);
  EXPECT_EQ(read.files().at(read.tensors().at("half"))->file().filename(), "two.bin");
  EXPECT_EQ(log.warnings(), 1) << log.text();
}

// Returns the text with its first `from` as `to`.
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

// Changes 1 to 4 of the bytes from `begin` to `end`.
std::string damage(std::string file, size_t begin, size_t end, RandomSequence& random) {
  const uint64_t changes = 1 + random.below(4);
  for (uint64_t i = 0; i < changes; ++i) {
    file[begin + static_cast<size_t>(random.below(end - begin))] = static_cast<char>(random.below(256));
  }
  return file;
}

class PickledWeightsTest : public testing::Test {
 protected:
  std::string error(const std::string& content) const {
    write_text(file_, content);
    return error_of([&] { read_all(); });
  }
  std::string error_of_pickle(const std::string& text) const { return error(zip_of({text, state_dict().storages})); }
  // Touches every byte, as a model that is loaded does.
  void read_all() const {
    const auto weights = open_pickled_weights(file_);
    for (const auto& [name, entry] : weights->tensors()) weights->stored(name).clone();
  }

  const TemporaryDirectory folder_;
  const std::filesystem::path file_ = folder_ / "pytorch_model.bin";
};

TEST_F(PickledWeightsTest, TensorsAreReadAsTheyWereSaved) {
  write_text(file_, zip_of(state_dict()));
  const WeightFiles weights(folder_.path());
  const at::Tensor whole = at::arange(24, at::kFloat).view({4, 6});
  EXPECT_TRUE(weights.stored("plain").equal(whole));
  EXPECT_TRUE(weights.stored("transposed").equal(whole.t()));
  EXPECT_EQ(weights.stored("plain").const_data_ptr(), weights.stored("transposed").const_data_ptr());
  EXPECT_EQ(weights.entry("transposed").shape, (std::vector<int64_t>{6, 4}));
  EXPECT_EQ(weights.entry("half").dtype, "F16");
  EXPECT_FALSE(float_type(weights.entry("count").dtype));
  EXPECT_EQ(weights.bytes("plain").size(), 96);
}

// A module's state dict is an OrderedDict with _metadata. Tensors that are one object are pickled once.
TEST_F(PickledWeightsTest, OrderedDictsAndTensorsThatAreOneObjectAreRead) {
  std::string parameter = tensor("FloatStorage", '0', "K\x03\x85", "\x8a\x01\x04\x85");
  parameter = replaced("ctorch._utils\n_rebuild_parameter\n" + parameter, "K\x00"s, "K\x02");  // the offset
  const std::string text = "\x80\x02" + "ccollections\nOrderedDict\nq\x00)Rq\x01("s + string("a") + parameter +
                           "\x88h\x00)R\x87Rr\x07\x00\x00\x00"s + string("b") + "j\x07\x00\x00\x00u}"s +
                           string("_metadata") + "h\x00)Rsb."s;
  write_text(file_, zip_of({text, {at::arange(24, at::kFloat)}}));
  const auto weights = open_pickled_weights(file_);
  EXPECT_TRUE(weights->stored("a").equal(at::tensor({2.F, 6.F, 10.F})));
  EXPECT_TRUE(weights->stored("b").equal(weights->stored("a")));
  EXPECT_THROW(weights->stored("c"), std::logic_error);
}

TEST_F(PickledWeightsTest, WhatIsNoStateDictIsAnErrorWithAWayOut) {
  const std::string good = zip_of(state_dict());
  for (const auto& [content, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "not a zip"},
           {"\x80\x02" + "ccollections\nOrderedDict\n"s, "before 1.6"},
           {good.substr(0, good.size() / 2), "cannot be read"},
           {zip_of(state_dict(), true), "the archive is compressed"},
           {zip_of({state_dict().text, {}}), "the archive lacks data/0"},
           {zip_of({"\x80\x02" + tensor("FloatStorage", '0', ")", ")") + ".", {}}), "only collections.OrderedDict may"},
           {zip_of({"\x80\x02}" + string("step") + "K\x01s.", {}}), "'step'"}}) {
    EXPECT_THAT(error(content),
                testing::AllOf(HasSubstr(message), HasSubstr(file_.string()), HasSubstr("save_pretra")));
  }
}

TEST_F(PickledWeightsTest, HostilePicklesAreErrors) {
  const std::string good = state_dict().text;
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"\x80\x02" + "cos\nsystem\n"s + string("true") + "\x85R.", "os.system"},
           {replaced(good, "torch._utils\n_rebuild_tensor_v2", "os\nsystem"), "os.system"},
           {replaced(good, "torch\nFloatStorage", "torch\nQInt8Storage"), "unknown type torch.QInt8Storage"},
           {replaced(good, "torch\nFloatStorage", "torch\nDoubleStorage"), "reaches outside"},
           {replaced(good, "K\x04K\x06", "J\xff\xff\xff\x7fK\x06"), "reaches outside"},
           {replaced(good, "K\x04K\x06", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\x06"), "overflow"},
           {replaced(good, "K\x04K\x06", "J\xff\xff\xff\xffK\x06"), "negative"},
           {replaced(good, "K\x04K\x06\x86", "K\x04K\x06K\x01\x87"), "impossible"},
           {"\x80\x04}.", "not of protocol 2"},
           {"\x80\x02}X\xff\xff\xff\xff.", "ends too early"},
           {"\x80\x02" + ")"s + std::string(1'000'000, '\x85') + ".", "a dictionary is expected"},
           {"\x80\x02]q\x00h\x00"s + "a.", "a dictionary is expected"},
           {"\x80\x02" + "c"s + std::string(1000, 'a'), "ends too early"},
           {"\x80\x02}" + string("a") + "h\x05s.", "never made"}}) {
    EXPECT_THAT(error_of_pickle(text), HasSubstr(message));
  }
}

// Any other exception, a crash or a huge allocation fails the test (and the sanitizers see the rest). Damage to a
// tensor's own bytes is read; a tensor never reaches outside its storage.
TEST_F(PickledWeightsTest, DamagedFilesAreRefusedOrRead) {
  const Pickle pickle = state_dict();
  const std::string good = zip_of(pickle);
  const size_t begin = good.find(pickle.text);
  ASSERT_NE(begin, std::string::npos);
  RandomSequence random{CounterRandom(7, "damage")};
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    refused += error(damage(good, begin, begin + pickle.text.size(), random)) == "no error" ? 0 : 1;
  }
  EXPECT_GT(refused, 500);
  refused = 0;
  for (int i = 0; i < 500; ++i) {
    std::string damaged = damage(good, 0, good.size(), random);
    if (random.below(4) == 0) damaged.resize(static_cast<size_t>(random.below(damaged.size())));
    refused += error(damaged) == "no error" ? 0 : 1;
  }
  EXPECT_GT(refused, 125);
  for (size_t length = 0; length < pickle.text.size(); length += 7) {
    EXPECT_NE(error_of_pickle(pickle.text.substr(0, length)), "no error") << length;
  }
}

}  // namespace
}  // namespace draftsmith::model
