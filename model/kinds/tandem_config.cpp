#include "model/kinds/tandem_config.h"

#include <algorithm>
#include <cctype>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "model/families/common.h"
#include "model/files/model_kind.h"

namespace draftsmith::model {

namespace {

constexpr const char* kTandemKey = "draftsmith_tandem";

// A list of millions of numbers, as a file may hold, makes one short problem.
void check_layer_map(const TandemShape& shape, int64_t secondary_layers, const std::string& where, Problems& problems) {
  constexpr size_t kShown = 16;
  const std::span<const int64_t> map = shape.layer_map;
  if (static_cast<int64_t>(map.size()) != secondary_layers) {
    const auto shown = map.first(std::min(kShown, map.size()));
    problems.add({.where = where,
                  .what = "has not one number for each layer of the secondary",
                  .expected = fmt::format("{} numbers", secondary_layers),
                  .found = fmt::format("{}: {}{}", map.size(), fmt::join(shown, ", "),
                                       shown.size() < map.size() ? ", ..." : "")});
    return;
  }
  const auto outside = [&](int64_t layer) { return layer < 0 || layer > shape.primary_layers; };
  const auto wrong = std::find_if(map.begin(), map.end(), outside);
  if (wrong == map.end()) return;
  problems.add({.where = where,
                .what = "names a representation that the primary does not have",
                .expected = fmt::format("0 (embedding output) to {} (its last layer)", shape.primary_layers),
                .found = fmt::format("{}", *wrong)});
}

}  // namespace

void check_tandem_shape(const TandemShape& shape, int64_t secondary_layers, const std::string& where,
                        Problems& problems) {
  check_layer_map(shape, secondary_layers, where + ": layer_map", problems);
  if (shape.block < 1) {
    problems.add({.where = where + ": block",
                  .what = "a block has at least one token",
                  .expected = "1 or more",
                  .found = fmt::format("{}", shape.block)});
  }
}

void read_tandem_config(ConfigReader& reader, const std::string& where, TransformerConfig& config, Problems& problems) {
  const nlohmann::json* object = kind_object(reader, kTandemKey);
  if (object == nullptr) return;
  ConfigReader inside = reader.within(*object);
  const size_t before = problems.list().size();
  config.tandem.primary_width = inside.get_int("primary_width", {1, kMaxWidth});
  config.tandem.primary_layers = inside.get_int("primary_layers", {1, kMaxLayers});
  config.tandem.layer_map = inside.get_ints("layer_map");
  config.tandem.block = inside.get_int("block", {1, kMaxPositions});
  if (problems.list().size() == before) {
    check_tandem_shape(config.tandem, config.decoder_layers, where + ": " + kTandemKey, problems);
  }
  if (config.encoder_layers != 0) {
    reader.wrong("num_layers", "gives a Tandem secondary an encoder, where it reads its primary's", "0");
  }
}

void write_tandem_config(const TransformerConfig& config, nlohmann::ordered_json& config_json) {
  nlohmann::ordered_json& object = config_json[kTandemKey];
  object["primary_width"] = config.tandem.primary_width;
  object["primary_layers"] = config.tandem.primary_layers;
  object["layer_map"] = config.tandem.layer_map;
  object["block"] = config.tandem.block;
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

void write_primary_record(const PrimaryRecord& primary, nlohmann::ordered_json& config_json) {
  config_json[kTandemKey]["primary"] = {{"path", primary.path}, {"sha256", primary.hash}};
}

void remove_primary_path(nlohmann::json& config_json) {
  const auto tandem = config_json.find(kTandemKey);
  if (tandem != config_json.end() && tandem->contains("primary") && tandem->at("primary").is_object()) {
    tandem->at("primary").erase("path");
  }
}

}  // namespace draftsmith::model
