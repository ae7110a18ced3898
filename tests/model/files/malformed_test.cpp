// A small corpus of malformed model directories, made here: each is refused with a UserError that names the tensor or
// key and the mismatch, and none crashes.
#include <cstring>
#include <fstream>
#include <functional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "model/files/model_directory.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kQuery = "decoder.block.1.layer.0.SelfAttention.q.weight";

// Header and data of a well-formed file, to be put together again after damage.
struct Parts {
  json header;
  std::string data;
};

Parts take_apart(const fs::path& file) {
  const std::string bytes = read_file(file);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  return {json::parse(bytes.substr(8, length)), bytes.substr(8 + length)};
}

void put_together(const fs::path& file, const Parts& parts) {
  write_file_atomic(file, raw_safetensors(parts.header.dump(), parts.data));
}

struct Damage {
  std::string name;
  std::function<void(const fs::path&)> apply;
  std::vector<std::string> message;  // what the error must say
};

// Damage to the header of model.safetensors.
Damage header(std::string name, const std::function<void(json&)>& change, std::vector<std::string> message) {
  return {std::move(name),
          [change](const fs::path& directory) {
            Parts parts = take_apart(directory / "model.safetensors");
            change(parts.header);
            put_together(directory / "model.safetensors", parts);
          },
          std::move(message)};
}

Damage config(std::string name, const std::function<void(json&)>& change, std::vector<std::string> message) {
  return {std::move(name),
          [change](const fs::path& directory) {
            json value = load_json(directory / "config.json");
            change(value);
            write_json(directory / "config.json", value);
          },
          std::move(message)};
}

Damage file(std::string name, const std::string& which, const std::string& content, std::vector<std::string> message) {
  return {std::move(name),
          [which, content](const fs::path& directory) { write_file_atomic(directory / which, content); },
          std::move(message)};
}

std::vector<Damage> header_damages() {
  const auto offsets = [](json& header) -> json& { return header[kQuery]["data_offsets"]; };
  return {
      header("TensorMissing", [](json& h) { h.erase(kQuery); }, {"hole"}),
      header("OffsetsBeyondFile",
             [=](json& h) {
               offsets(h) = {1'000'000, 1'000'240};
             },
             {kQuery, "outside the file"}),
      header("OffsetsReversed",
             [=](json& h) {
               offsets(h) = {240, 0};
             },
             {kQuery, "data_offsets"}),
      header("OffsetsNegative",
             [=](json& h) {
               offsets(h) = {-240, 0};
             },
             {kQuery, "data_offsets", "-240"}),
      header("OffsetsFraction",
             [=](json& h) {
               offsets(h) = {0.5, 240.5};
             },
             {kQuery, "data_offsets"}),
      header("OffsetsOfThree",
             [=](json& h) {
               offsets(h) = {0, 1, 2};
             },
             {kQuery, "data_offsets"}),
      header("OffsetsOfText", [=](json& h) { offsets(h) = "0-240"; }, {kQuery, "data_offsets"}),
      header("OffsetsHuge",
             [=](json& h) {
               offsets(h) = {0, 18446744073709551615ULL};
             },
             {kQuery, "data_offsets"}),
      header("OffsetsOverlap",
             [=](json& h) {
               h[kQuery]["data_offsets"] = h["decoder.block.0.layer.0.SelfAttention.q.weight"]["data_offsets"];
             },
             {kQuery, "overlap"}),
      header("OffsetsTooShort", [=](json& h) { offsets(h)[1] = offsets(h)[1].get<int64_t>() - 4; },
             {kQuery, "byte range", "240"}),
      header("ShapeTransposed",
             [](json& h) {
               h[kQuery]["shape"] = {6, 10};
             },
             {kQuery, "[10, 6]", "[6, 10]"}),
      header("ShapeNegative",
             [](json& h) {
               h[kQuery]["shape"] = {-10, -6};
             },
             {kQuery, "bad shape"}),
      header("ShapeOverflows",
             [](json& h) {
               h[kQuery]["shape"] = {int64_t{1} << 62, int64_t{1} << 62};
             },
             {kQuery, "overflow"}),
      header("ShapeOverflowsBehindZero",
             [](json& h) {
               h[kQuery]["shape"] = {0, int64_t{1} << 62, int64_t{1} << 62};
             },
             {kQuery, "overflow"}),
      header("ShapeOfAThousandDims", [](json& h) { h[kQuery]["shape"] = std::vector<int>(1000, 1); },
             {kQuery, "bad shape"}),
      header("ShapeAbsent", [](json& h) { h[kQuery].erase("shape"); }, {kQuery, "incomplete"}),
      header("DtypeUnknown", [](json& h) { h[kQuery]["dtype"] = "F33"; }, {kQuery, "unknown dtype", "F33"}),
      header("DtypeOfOtherSize", [](json& h) { h[kQuery]["dtype"] = "F16"; }, {kQuery, "byte range", "120"}),
      header("DtypeInteger", [](json& h) { h[kQuery]["dtype"] = "I32"; }, {kQuery, "I32", "floating point"}),
      header("EntryIsNoObject", [](json& h) { h[kQuery] = 3; }, {kQuery, "incomplete"}),
      header("Renamed",
             [](json& h) {
               h["decoder.extra"] = h[kQuery];
               h.erase(kQuery);
             },
             {kQuery, "missing", "decoder.extra"}),
      header("MetadataOfNumbers",
             [](json& h) {
               h["__metadata__"] = {{"format", 1}};
             },
             {"__metadata__"}),
  };
}

std::vector<Damage> file_damages() {
  const std::string weights = "model.safetensors";
  const std::string twice =
      R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})";
  return {
      file("WeightsEmpty", weights, "", {"too short"}),
      file("WeightsSevenBytes", weights, "1234567", {"too short", "7 bytes"}),
      file("HeaderLengthHuge", weights, std::string(8, '\xff') + "{}", {"header's length"}),
      file("HeaderLongerThanFile", weights, std::string{'\x40', 0, 0, 0, 0, 0, 0, 0, '{', '}'},
           {"header's length", "64 bytes"}),
      file("HeaderNoJson", weights, raw_safetensors("{\"a\":", ""), {"header", "JSON"}),
      file("HeaderNotUtf8", weights, raw_safetensors("{\"\xff\xfe\":{}}", ""), {"header", "JSON"}),
      file("HeaderAList", weights, raw_safetensors("[]", ""), {"header is not a JSON object"}),
      file("HeaderDeep", weights, raw_safetensors(std::string(200'000, '['), ""), {"header", "deep"}),
      file("HeaderNameTwice", weights, raw_safetensors(twice, "1234"), {"twice", "\"a\""}),
      file("BytesAfterTheLastTensor", weights,
           raw_safetensors(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", "12345"),
           {"belong to no tensor"}),
      file("ConfigEmpty", "config.json", "", {"config.json", "JSON"}),
      file("ConfigBroken", "config.json", "{\"vocab_size\": 11,", {"config.json", "JSON"}),
      file("ConfigAList", "config.json", "[1]", {"config.json", "object"}),
      file("ConfigDeep", "config.json", "{\"a\":" + std::string(100'000, '['), {"config.json", "deep"}),
      file("ConfigNotUtf8", "config.json", "{\"model_type\": \"t5\xc3\x28\"}", {"config.json", "JSON"}),
      file("ConfigNumberTooLarge", "config.json", "{\"model_type\": \"t5\", \"d_model\": 1e999}", {"config.json"}),
      file("GenerationBroken", "generation_config.json", "{", {"generation_config.json"}),
      file("GenerationAList", "generation_config.json", "[]", {"generation_config.json"}),
      file("GenerationEosOutside", "generation_config.json", "{\"eos_token_id\": 11}",
           {"eos_token_id", "11", "0 to 10"}),
      {"WeightsAreADirectory",
       [](const fs::path& d) {
         fs::remove(d / "model.safetensors");
         fs::create_directory(d / "model.safetensors");
       },
       {"model.safetensors"}},
      {"WeightsAbsent", [](const fs::path& d) { fs::remove(d / "model.safetensors"); }, {"no weights"}},
      {"ConfigAbsent", [](const fs::path& d) { fs::remove(d / "config.json"); }, {"config.json"}},
      {"DirectoryAbsent", [](const fs::path& d) { fs::remove_all(d); }, {"no such model directory"}},
  };
}

std::vector<Damage> config_damages() {
  return {
      config("VocabularyAnother", [](json& c) { c["vocab_size"] = 12; }, {"shared.weight", "[12, 6]", "[11, 6]"}),
      config("WidthNegative", [](json& c) { c["d_model"] = -6; }, {"d_model", "-6"}),
      config("WidthAbsurd", [](json& c) { c["d_model"] = 9e18; }, {"d_model"}),
      config("WidthZero", [](json& c) { c["d_model"] = 0; }, {"d_model"}),
      config("WidthText", [](json& c) { c["d_model"] = "6"; }, {"d_model"}),
      config("LayersAbsurd", [](json& c) { c["num_layers"] = 1'000'000'000; }, {"num_layers"}),
      config("AllSizesAbsurd",
             [](json& c) {
               c["d_model"] = c["d_ff"] = 1 << 18;
               c["num_layers"] = 1024;
             },
             {"absurdly large"}),
      config("LayersOneMore", [](json& c) { c["num_decoder_layers"] = 4; },
             {"decoder.block.3.layer.0.SelfAttention.q.weight", "missing"}),
      config("LayersOneLess", [](json& c) { c["num_decoder_layers"] = 2; },
             {"decoder.block.2.layer.0.SelfAttention.q.weight", "is not a tensor"}),
      config("SeveralAtOnce",
             [](json& c) {
               c["d_kv"] = 0;
               c["num_heads"] = "x";
               c["dropout_rate"] = 2;
             },
             {"d_kv", "num_heads", "dropout_rate"}),
      config("ActivationUnknown", [](json& c) { c["feed_forward_proj"] = "gated-quick"; },
             {"feed_forward_proj", "gated-quick"}),
      config("ArchitectureUnknown", [](json& c) { c["architectures"] = {"BartModel"}; },
             {"BartModel", "T5ForConditionalGeneration", "MT5ForConditionalGeneration"}),
      config("ArchitectureAbsent",
             [](json& c) {
               c.erase("architectures");
               c.erase("model_type");
             },
             {"architecture"}),
      config("ModelTypeUnknown",
             [](json& c) {
               c.erase("architectures");
               c["model_type"] = "t6";
             },
             {"t6", "did you mean t5"}),
      config("EosOutside",
             [](json& c) {
               c["eos_token_id"] = {1, 11};
             },
             {"eos_token_id"}),
      config("BucketsTooFew", [](json& c) { c["relative_attention_num_buckets"] = 3; },
             {"relative_attention_num_buckets"}),
      config("DistanceTooSmall", [](json& c) { c["relative_attention_max_distance"] = 16; },
             {"relative_attention_max_distance", "16"}),
      config("DistanceAbsurd", [](json& c) { c["relative_attention_max_distance"] = 1 << 30; },
             {"relative_attention_max_distance", "1073741824"}),
      config("Quantised",
             [](json& c) {
               c["quantization_config"] = {{"bits", 4}};
             },
             {"quantization_config"}),
      config("GatedButStoredPlain", [](json& c) { c["feed_forward_proj"] = "gated-gelu"; },
             {"wi_0.weight", "wi.weight"}),
  };
}

class MalformedDirectory : public testing::TestWithParam<Damage> {};

TEST_P(MalformedDirectory, IsRefusedByName) {
  const TemporaryDirectory temporary;
  const fs::path directory = temporary / "model";
  write_directory(directory, tiny_t5_config());
  ASSERT_EQ(error_of([&] { ModelDirectory opened(directory); }), "no error");

  GetParam().apply(directory);

  const std::string message = error_of([&] { ModelDirectory opened(directory); });
  for (const std::string& part : GetParam().message) {
    EXPECT_THAT(message, HasSubstr(part));
  }
}

std::string case_name(const testing::TestParamInfo<Damage>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Header, MalformedDirectory, testing::ValuesIn(header_damages()), case_name);
INSTANTIATE_TEST_SUITE_P(File, MalformedDirectory, testing::ValuesIn(file_damages()), case_name);
INSTANTIATE_TEST_SUITE_P(Config, MalformedDirectory, testing::ValuesIn(config_damages()), case_name);

TEST(MalformedWeights, TruncatedAnywhereAreRefused) {
  const TemporaryDirectory temporary;
  write_directory(temporary / "model", tiny_t5_config());
  const fs::path weights = temporary / "model" / "model.safetensors";
  const std::string whole = read_file(weights);
  for (size_t length = 0; length < whole.size(); length += length < 16 ? 1 : 97) {
    write_text(weights, whole.substr(0, length));
    EXPECT_THAT(error_of([&] { ModelDirectory opened(temporary / "model"); }), HasSubstr("model.safetensors"))
        << length << " of " << whole.size() << " bytes";
  }
}

TEST(MalformedWeights, RandomDamageToTheHeaderNeverCrashes) {
  const TemporaryDirectory temporary;
  write_directory(temporary / "model", tiny_t5_config());
  const fs::path weights = temporary / "model" / "model.safetensors";
  const std::string whole = read_file(weights);
  uint64_t length = 0;
  std::memcpy(&length, whole.data(), sizeof(length));
  std::mt19937_64 random(11);
  int refused = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string damaged = whole;
    for (uint64_t flips = 1 + random() % 4; flips > 0; --flips) {
      damaged[random() % (8 + length)] ^= static_cast<char>(1 << (random() % 8));
    }
    write_text(weights, damaged);
    refused += error_of([&] { SafetensorsFile opened(weights); }) != "no error" ? 1 : 0;
  }
  // Flips inside names and of blanks to other blanks leave a well-formed file.
  EXPECT_GT(refused, 750);
}

TEST(MalformedWeights, RandomDamageToConfigNeverCrashes) {
  const TemporaryDirectory temporary;
  write_directory(temporary / "model", tiny_t5_config());
  const fs::path file = temporary / "model" / "config.json";
  const std::string whole = read_file(file);
  std::mt19937_64 random(12);
  int refused = 0;
  for (int round = 0; round < 500; ++round) {
    std::string damaged = whole;
    damaged[random() % whole.size()] = static_cast<char>(random() % 256);
    write_text(file, damaged);
    refused += error_of([&] { ModelDirectory opened(temporary / "model"); }) != "no error" ? 1 : 0;
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace draftsmith::model
