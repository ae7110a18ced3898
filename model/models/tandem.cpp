#include "model/models/tandem.h"

#include <algorithm>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "model/families/family.h"
#include "model/models/companion.h"

namespace draftsmith::model {
namespace {

constexpr const char* kTandemKey = "draftsmith_tandem";

// Adds a problem for each: a layer map of another length than the secondary's layers, or the first number in it outside
// 0..primary_layers; a block γ below 1. A list of millions of numbers, as a file may hold, makes one short problem.
void check_tandem_shape(const TandemShape& shape, int64_t secondary_layers, const std::string& where,
                        Problems& problems) {
  constexpr size_t kShown = 16;
  if (shape.block < 1) {
    problems.add({.where = where + ": block",
                  .what = "a block has at least one token",
                  .expected = "1 or more",
                  .found = fmt::format("{}", shape.block)});
  }
  const std::span<const int64_t> map = shape.layer_map;
  const auto outside = [&](int64_t layer) { return layer < 0 || layer > shape.primary_layers; };
  const auto wrong = std::find_if(map.begin(), map.end(), outside);
  if (std::ssize(map) != secondary_layers) {
    const auto shown = map.first(std::min(kShown, map.size()));
    problems.add({.where = where + ": layer_map",
                  .what = "has not one number for each layer of the secondary",
                  .expected = fmt::format("{} numbers", secondary_layers),
                  .found = fmt::format("{}: {}{}", map.size(), fmt::join(shown, ", "),
                                       shown.size() < map.size() ? ", ..." : "")});
  } else if (wrong != map.end()) {
    problems.add({.where = where + ": layer_map",
                  .what = "names a representation that the primary does not have",
                  .expected = fmt::format("0 (embedding output) to {} (its last layer)", shape.primary_layers),
                  .found = fmt::format("{}", *wrong)});
  }
}

void tandem_keys(ConfigKeys& keys, TransformerConfig& config) {
  std::optional<ConfigKeys> object = keys.within(kTandemKey);
  if (!object) return;
  const size_t before = keys.reads() ? keys.reader().problems().list().size() : 0;
  object->integer("primary_width", config.tandem.primary_width, {1, kMaxWidth});
  object->integer("primary_layers", config.tandem.primary_layers, {1, kMaxLayers});
  object->integers("layer_map", config.tandem.layer_map);
  object->also("layer_map", config.tandem.layer_map);  // a list even of one number
  object->integer("block", config.tandem.block, {1, kMaxPositions});
  if (!keys.reads()) return;
  ConfigReader& reader = keys.reader();
  if (reader.problems().list().size() == before) {
    check_tandem_shape(config.tandem, config.decoder_layers, reader.where() + ": " + kTandemKey, reader.problems());
  }
  if (config.encoder_layers != 0) {
    reader.wrong("num_layers", "gives a Tandem secondary an encoder, where it reads its primary's", "0");
  }
}

constexpr CompanionRole kTandemRole = {.key = kTandemKey,
                                       .role = "primary",
                                       .reader = "Tandem secondary",
                                       .remedy = ", or train the Tandem with copy_primary",
                                       .require_pair = require_tandem_pair};

namespace fs = std::filesystem;

}  // namespace

const ModelKind& tandem_kind() {
  static const ModelKind kTandem = {
      .name = "a Tandem secondary",
      .prefix = "DraftsmithTandem",
      .model_type = "draftsmith_tandem",
      .hint =
          "it reads another model's representations: decode with its primary and this as the drafter "
          "(--model PRIMARY --drafter DIR)",
      .describes = [](const TransformerConfig& config) { return config.tandem_secondary(); },
      .keys = tandem_keys,
      .companion = &kTandemRole};
  return kTandem;
}

std::vector<int64_t> default_layer_map(int64_t secondary_layers, int64_t primary_layers) {
  std::vector<int64_t> map;
  for (int64_t j = 0; j < secondary_layers; ++j) map.push_back((j + 1) * primary_layers / secondary_layers);
  return map;
}

void require_tandem_pair(const TransformerConfig& secondary, const TransformerConfig& primary, const PairNames& names) {
  Problems problems;
  check_pair(kTandemRole, secondary, primary, names, problems);
  if (secondary.tandem_secondary()) {
    const auto same = [&](const char* what, int64_t own, int64_t other) {
      require_same(kTandemRole, names, what, {std::to_string(own), std::to_string(other)}, problems);
    };
    same("the primary's width", secondary.tandem.primary_width, primary.width);
    same("the primary's layers", secondary.tandem.primary_layers, primary.decoder_layers);
  }
  problems.throw_if_any();
}

TransformerConfig tandem_config(TransformerConfig secondary, const TransformerConfig& primary, const TandemStart& start,
                                const PairNames& names) {
  require_tandem_pair(secondary, primary, names);
  secondary.encoder_layers = 0;
  secondary.tandem = {primary.width, primary.decoder_layers, start.layer_map, start.block};
  if (start.layer_map.empty()) {
    secondary.tandem.layer_map = default_layer_map(secondary.decoder_layers, primary.decoder_layers);
  }
  throw_problems_of(check_tandem_shape, secondary.tandem, secondary.decoder_layers, names.own);
  return secondary;
}

std::unique_ptr<TransformerModel> make_tandem_secondary(const TransformerModel& secondary,
                                                        const TransformerModel& primary, const TandemStart& start) {
  const TransformerConfig config =
      tandem_config(secondary.config(), primary.config(), start, {secondary.info().name, primary.info().name});
  return with_projections(config, secondary, {start.projections, start.seed});
}

void save_tandem(const fs::path& directory, const TransformerModel& secondary, const TandemSaveOptions& options) {
  if ((options.primary == nullptr) == options.primary_directory.empty()) {
    throw std::logic_error("a Tandem is saved with a primary in memory or in a directory");
  }
  const fs::path place = require_free_place(directory);
  write_new_directory(place, [&](const fs::path& temporary) {
    SaveOptions files = options.files;
    const char* const name = kTandemRole.role;
    const fs::path inside = temporary / name;
    if (options.primary != nullptr) {
      save_model(inside, *options.primary, options.files);
      if (options.record_primary) files.companion = {name, model_hash(inside)};
    } else if (options.copy_primary) {
      copy_model(options.primary_directory, inside);
      files.companion = {name, model_hash(inside)};
    } else {
      files.companion = reference(options.primary_directory, place);
    }
    write_model_files(temporary, secondary, files);
  });
}

}  // namespace draftsmith::model
