#include "model/files/kind_config.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/families/common.h"
#include "model/files/tandem_shape.h"

namespace draftsmith::model {

namespace {

constexpr const char* kTandemKey = "draftsmith_tandem";
constexpr const char* kBlockKey = "draftsmith_block_prediction";
constexpr int64_t kMaxBlock = int64_t{1} << 24;

const nlohmann::json* object_under(const std::string& key, ConfigReader& reader) {
  if (!reader.has(key) || !reader.at(key).is_object()) {
    reader.wrong(key, "is missing from a model of this architecture", "a JSON object");
    return nullptr;
  }
  return &reader.at(key);
}

void read_tandem(ConfigReader& reader, const std::string& where, TransformerConfig& config, Problems& problems) {
  const nlohmann::json* object = object_under(kTandemKey, reader);
  if (object == nullptr) return;
  ConfigReader inside = reader.within(*object);
  const size_t before = problems.list().size();
  config.tandem.primary_width = inside.get_int("primary_width", {1, kMaxWidth});
  config.tandem.primary_layers = inside.get_int("primary_layers", {1, kMaxLayers});
  config.tandem.layer_map = inside.get_ints("layer_map");
  config.tandem.block = inside.get_int("block", {1, kMaxBlock});
  if (problems.list().size() == before) {
    check_tandem_shape(config.tandem, config.decoder_layers, where + ": " + kTandemKey, problems);
  }
  if (config.encoder_layers != 0) {
    reader.wrong("num_layers", "gives a Tandem secondary an encoder, where it reads its primary's", "0");
  }
}

void read_block(ConfigReader& reader, TransformerConfig& config) {
  const nlohmann::json* object = object_under(kBlockKey, reader);
  if (object == nullptr) return;
  config.block_attention = reader.within(*object).get_int("block", {1, kMaxBlock});
  if (config.encoder_decoder) {
    reader.wrong(kBlockKey, "is not for encoder-decoder models", "a decoder-only architecture");
  }
}

}  // namespace

void read_kind(ModelKind kind, ConfigReader& reader, const std::string& where, TransformerConfig& config,
               Problems& problems) {
  if (kind == ModelKind::kTandem) read_tandem(reader, where, config, problems);
  if (kind == ModelKind::kBlockPrediction) read_block(reader, config);
  if (kind != ModelKind::kTandem && config.encoder_decoder && config.encoder_layers < 1) {
    reader.wrong("num_layers", "leaves the model without an encoder, as only a Tandem secondary is",
                 fmt::format("1 to {}", kMaxLayers));
  }
}

void write_kind(const TransformerConfig& config, const std::optional<PrimaryRecord>& primary,
                nlohmann::ordered_json& config_json) {
  if (config.block_attention > 0) config_json[kBlockKey] = {{"block", config.block_attention}};
  if (!config.tandem_secondary()) return;
  nlohmann::ordered_json& object = config_json[kTandemKey];
  object["primary_width"] = config.tandem.primary_width;
  object["primary_layers"] = config.tandem.primary_layers;
  object["layer_map"] = config.tandem.layer_map;
  object["block"] = config.tandem.block;
  if (primary) object["primary"] = {{"path", primary->path}, {"sha256", primary->hash}};
}

std::optional<PrimaryRecord> read_primary_record(const nlohmann::json& config_json, const std::string& where) {
  const auto object = config_json.find(kTandemKey);
  if (object == config_json.end() || !object->is_object() || !object->contains("primary")) return std::nullopt;
  Problems problems;
  JsonReader reader(object->at("primary"), where + ": " + kTandemKey + ": primary", problems);
  PrimaryRecord record{reader.get_string("path"), reader.get_string("sha256")};
  const bool hash = record.hash.size() == 64 && std::all_of(record.hash.begin(), record.hash.end(),
                                                            [](unsigned char c) { return std::isxdigit(c) != 0; });
  if (problems.empty() && (!hash || record.path.empty())) {
    problems.add({.where = where + ": " + kTandemKey + ": primary",
                  .what = "does not name a model",
                  .expected = "a path and a SHA-256 of 64 hexadecimal digits",
                  .found = fmt::format("\"{}\" and \"{}\"", record.path, record.hash.substr(0, 80)),
                  .hint = {}});
  }
  problems.throw_if_any();
  return record;
}

}  // namespace draftsmith::model
