// A small corpus of malformed model directories, made here: each is refused with a UserError that names the tensor or
// key and the mismatch, and none crashes.
#include <cstring>
#include <functional>
#include <random>

#include <gmock/gmock.h>

#include "base/files.h"
#include "model/files/model_directory.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kQuery = "decoder.block.1.layer.0.SelfAttention.q.weight";

struct Damage {
  std::string name;
  std::function<void(const fs::path&)> apply;
  std::vector<std::string> message;  // what the error must say
};

// Damage to the header of model.safetensors.
Damage header(std::string name, const std::function<void(json&)>& change, std::vector<std::string> message) {
  return {std::move(name),
          [change](const fs::path& directory) {
            const std::string bytes = read_file(directory / "model.safetensors");
            uint64_t length = 0;
            std::memcpy(&length, bytes.data(), sizeof(length));
            json changed = json::parse(bytes.substr(8, length));
            change(changed);
            write_file_atomic(directory / "model.safetensors",
                              raw_safetensors(changed.dump(), bytes.substr(8 + length)));
          },
          std::move(message)};
}

// A merge patch (RFC 7396) of one tensor's entry.
Damage entry(std::string name, const std::string& patch, std::vector<std::string> message) {
  message.push_back(kQuery);
  const auto change = [patch](json& header) { header[kQuery].merge_patch(json::parse(patch)); };
  return header(std::move(name), change, std::move(message));
}

// A merge patch of config.json.
Damage config(std::string name, const std::string& patch, std::vector<std::string> message) {
  return {std::move(name), [patch](const fs::path& directory) { patch_config(directory, json::parse(patch)); },
          std::move(message)};
}

Damage file(std::string name, const std::string& which, const std::string& content, std::vector<std::string> message) {
  return {std::move(name),
          [which, content](const fs::path& directory) { write_file_atomic(directory / which, content); },
          std::move(message)};
}

void rename_tensor(json& header) {
  header["decoder.extra"] = header[kQuery];
  header.erase(kQuery);
}

void overlap(json& header) {
  header[kQuery]["data_offsets"] = header["decoder.block.0.layer.0.SelfAttention.q.weight"]["data_offsets"];
}

std::vector<Damage> header_damages() {
  return {
      header("TensorMissing", [](json& h) { h.erase(kQuery); }, {"hole"}),
      header("Renamed", rename_tensor, {kQuery, "missing", "decoder.extra"}),
      header("OffsetsOverlap", overlap, {kQuery, "overlap"}),
      header("EntryIsNoObject", [](json& h) { h[kQuery] = 3; }, {kQuery, "incomplete"}),
      header("MetadataOfNumbers", [](json& h) { h["__metadata__"]["format"] = 1; }, {"__metadata__"}),
      header("ShapeOfAThousandDims", [](json& h) { h[kQuery]["shape"] = std::vector<int>(1000, 1); }, {"bad shape"}),
      entry("OffsetsBeyondFile", R"({"data_offsets": [1000000, 1000240]})", {"outside the file"}),
      entry("OffsetsNegative", R"({"data_offsets": [-240, 0]})", {"data_offsets", "-240"}),
      entry("OffsetsHuge", R"({"data_offsets": [0, 18446744073709551615]})", {"data_offsets"}),
      entry("OffsetsTooShort", R"({"data_offsets": [0, 236]})", {"byte range", "240"}),
      entry("ShapeTransposed", R"({"shape": [6, 10]})", {"[10, 6]", "[6, 10]"}),
      entry("ShapeOverflows", R"({"shape": [4611686018427387904, 4611686018427387904]})", {"overflow"}),
      entry("ShapeOverflowsBehindZero", R"({"shape": [0, 4611686018427387904, 4611686018427387904]})", {"overflow"}),
      entry("ShapeAbsent", R"({"shape": null})", {"incomplete"}),
      entry("DtypeUnknown", R"({"dtype": "F33"})", {"unknown dtype", "F33"}),
      entry("DtypeOfOtherSize", R"({"dtype": "F16"})", {"byte range", "120"}),
      entry("DtypeInteger", R"({"dtype": "I32"})", {"I32", "floating point"})};
}

std::vector<Damage> file_damages() {
  const std::string weights = "model.safetensors";
  const std::string twice =
      R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})";
  return {
      file("WeightsEmpty", weights, "", {"too short"}),
      file("HeaderLengthHuge", weights, std::string(8, '\xff') + "{}", {"header's length"}),
      file("HeaderLongerThanFile", weights, std::string{'\x40', 0, 0, 0, 0, 0, 0, 0, '{', '}'},
           {"header's length", "64 bytes"}),
      file("HeaderNoJson", weights, raw_safetensors("{\"a\":", ""), {"header", "JSON"}),
      file("HeaderAList", weights, raw_safetensors("[]", ""), {"header is not a JSON object"}),
      file("HeaderNameTwice", weights, raw_safetensors(twice, "1234"), {"twice", "\"a\""}),
      file("BytesAfterTheLastTensor", weights,
           raw_safetensors(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", "12345"),
           {"belong to no tensor"}),
      file("ConfigBroken", "config.json", "{\"vocab_size\": 11,", {"config.json", "JSON"}),
      file("ConfigAList", "config.json", "[1]", {"config.json", "object"}),
      file("ConfigDeep", "config.json", "{\"a\":" + std::string(100'000, '['), {"config.json", "deep"}),
      file("ConfigNotUtf8", "config.json", "{\"model_type\": \"t5\xc3\x28\"}", {"config.json", "JSON"}),
      file("ConfigNumberTooLarge", "config.json", "{\"model_type\": \"t5\", \"d_model\": 1e999}", {"config.json"}),
      file("GenerationBroken", "generation_config.json", "{", {"generation_config.json"}),
      file("GenerationStartOutside", "generation_config.json", "{\"decoder_start_token_id\": 11}",
           {"decoder_start_token_id", "11", "0 to 10"}),
      {"WeightsAreADirectory",
       [](const fs::path& d) {
         fs::remove(d / "model.safetensors");
         fs::create_directory(d / "model.safetensors");
       },
       {"model.safetensors"}},
      {"WeightsAbsent", [](const fs::path& d) { fs::remove(d / "model.safetensors"); }, {"no weights"}},
      {"ShardWithoutIndex",
       [](const fs::path& d) { fs::rename(d / "model.safetensors", d / "model-00001-of-00002.safetensors"); },
       {"no weights", "model-00001-of-00002.safetensors, but no index"}},
      {"IndexEmpty",
       [](const fs::path& d) {
         fs::remove(d / "model.safetensors");
         write_text(d / "model.safetensors.index.json", R"({"weight_map": {}})");
       },
       {"model.safetensors.index.json", "no weight_map"}},
      {"ConfigAbsent", [](const fs::path& d) { fs::remove(d / "config.json"); }, {"config.json"}},
      {"DirectoryAbsent", [](const fs::path& d) { fs::remove_all(d); }, {"no such model directory"}},
  };
}

std::vector<Damage> config_damages() {
  return {
      config("VocabularyAnother", R"({"vocab_size": 12})", {"shared.weight", "[12, 6]", "[11, 6]"}),
      config("WidthAbsurd", R"({"d_model": 9e18})", {"d_model"}),
      config("WidthText", R"({"d_model": "6"})", {"d_model"}),
      config("AllSizesAbsurd", R"({"d_model": 262144, "d_ff": 262144, "num_layers": 1024})",
             {"shared.weight", "[11, 262144]"}),
      config("LayersOneMore", R"({"num_decoder_layers": 4})", {"decoder.block.3.layer.0.SelfAttention.q.weight"}),
      config("LayersOneLess", R"({"num_decoder_layers": 2})", {"decoder.block.2.layer.0.", "is not a tensor"}),
      config("SeveralAtOnce", R"({"d_kv": 0, "num_heads": "x", "dropout_rate": 2})", {"d_kv", "num_heads", "dropout"}),
      config("ActivationUnknown", R"({"feed_forward_proj": "gated-quick"})", {"feed_forward_proj", "gated-quick"}),
      config("ArchitectureUnknown", R"({"architectures": ["BertModel"]})",
             {"BertModel", "MT5ForConditionalGeneration"}),
      config("ArchitectureAbsent", R"({"architectures": null, "model_type": null})", {"architecture"}),
      config("ModelTypeUnknown", R"({"architectures": null, "model_type": "t6"})", {"t6", "did you mean t5"}),
      config("DistanceTooSmall", R"({"relative_attention_max_distance": 16})", {"relative_attention_max_distance"}),
      config("Quantised", R"({"quantization_config": {"bits": 4}})", {"quantization_config"}),
      config("GatedButStoredPlain", R"({"feed_forward_proj": "gated-gelu"})", {"wi_0.weight", "wi.weight"})};
}

class MalformedDirectory : public testing::TestWithParam<Damage> {};

TEST_P(MalformedDirectory, IsRefusedByName) {
  const TemporaryDirectory temporary;
  const fs::path directory = temporary / "model";
  write_directory(directory, tiny_t5_config());
  ASSERT_EQ(error_of([&] { ModelDirectory opened(directory); }), "no error");

  GetParam().apply(directory);

  const std::string message = error_of([&] { ModelDirectory opened(directory); });
  for (const std::string& part : GetParam().message) EXPECT_THAT(message, HasSubstr(part));
}

std::string case_name(const testing::TestParamInfo<Damage>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Header, MalformedDirectory, testing::ValuesIn(header_damages()), case_name);
INSTANTIATE_TEST_SUITE_P(File, MalformedDirectory, testing::ValuesIn(file_damages()), case_name);
INSTANTIATE_TEST_SUITE_P(Config, MalformedDirectory, testing::ValuesIn(config_damages()), case_name);

// A well-formed directory whose files are damaged again and again.
class DamagedFiles : public testing::Test {
 protected:
  DamagedFiles() { write_directory(directory_, tiny_t5_config()); }
  std::string error() const {
    return error_of([&] { ModelDirectory opened(directory_); });
  }

  const TemporaryDirectory temporary_;
  const fs::path directory_ = temporary_ / "model", weights_ = directory_ / "model.safetensors";
};

TEST_F(DamagedFiles, TruncatedAnywhereAreRefused) {
  const std::string whole = read_file(weights_);
  for (size_t length = 0; length < whole.size(); length += length < 16 ? 1 : 97) {
    write_text(weights_, whole.substr(0, length));
    EXPECT_THAT(error(), HasSubstr("model.safetensors")) << length << " of " << whole.size() << " bytes";
  }
}

TEST_F(DamagedFiles, RandomDamageToTheHeaderNeverCrashes) {
  const std::string whole = read_file(weights_);
  uint64_t length = 0;
  std::memcpy(&length, whole.data(), sizeof(length));
  std::mt19937_64 random(11);
  int refused = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string damaged = whole;
    for (uint64_t flips = 1 + random() % 4; flips > 0; --flips) {
      damaged[random() % (8 + length)] ^= static_cast<char>(1 << (random() % 8));
    }
    write_text(weights_, damaged);
    refused += error_of([&] { SafetensorsFile opened(weights_); }) != "no error" ? 1 : 0;
  }
  // Flips inside names and of blanks to other blanks leave a well-formed file.
  EXPECT_GT(refused, 750);
}

TEST_F(DamagedFiles, RandomDamageToConfigNeverCrashes) {
  const std::string whole = read_file(directory_ / "config.json");
  std::mt19937_64 random(12);
  int refused = 0;
  for (int round = 0; round < 500; ++round) {
    std::string damaged = whole;
    damaged[random() % whole.size()] = static_cast<char>(random() % 256);
    write_text(directory_ / "config.json", damaged);
    refused += error() != "no error" ? 1 : 0;
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace draftsmith::model
