#include "model/kinds/tandem_config.h"

#include <algorithm>
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

const CompanionRole& tandem_role() {
  static const CompanionRole kRole = {.key = kTandemKey,
                                      .role = "primary",
                                      .reader = "Tandem secondary",
                                      .remedy = ", or train the Tandem with copy_primary"};
  return kRole;
}

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

}  // namespace draftsmith::model
