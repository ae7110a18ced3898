#include "model/kinds/tandem.h"

#include "base/json.h"
#include "model/files/copy_model.h"
#include "model/files/model_hash.h"
#include "model/files/new_directory.h"

namespace draftsmith::model {

namespace fs = std::filesystem;

const ModelKind& tandem_kind() {
  static const ModelKind kTandem = {
      .name = "a Tandem secondary",
      .prefix = "DraftsmithTandem",
      .model_type = "draftsmith_tandem",
      .hint =
          "it reads another model's representations: decode with its primary and this as the drafter "
          "(--model PRIMARY --drafter DIR)",
      .describes = [](const TransformerConfig& config) { return config.tandem_secondary(); },
      .read = read_tandem_config,
      .write = write_tandem_config,
      .remove_paths = [](nlohmann::json& config_json) { remove_companion_path(tandem_role(), config_json); },
      .check_directory = check_tandem_directory};
  return kTandem;
}

std::vector<int64_t> default_layer_map(int64_t secondary_layers, int64_t primary_layers) {
  std::vector<int64_t> map;
  for (int64_t j = 0; j < secondary_layers; ++j) map.push_back((j + 1) * primary_layers / secondary_layers);
  return map;
}

void require_tandem_pair(const TransformerConfig& secondary, const TransformerConfig& primary, const PairNames& names) {
  Problems problems;
  check_pair(tandem_role(), secondary, primary, names, problems);
  if (secondary.tandem_secondary()) {
    const auto same = [&](const char* what, int64_t own, int64_t other) {
      require_same(tandem_role(), names, what, {std::to_string(own), std::to_string(other)}, problems);
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
  Problems problems;
  check_tandem_shape(secondary.tandem, secondary.decoder_layers, names.own, problems);
  problems.throw_if_any();
  return secondary;
}

std::unique_ptr<TransformerModel> make_tandem_secondary(const TransformerModel& secondary,
                                                        const TransformerModel& primary, const TandemStart& start) {
  const TransformerConfig config =
      tandem_config(secondary.config(), primary.config(), start, {secondary.info().name, primary.info().name});
  return with_projections(config, secondary, {start.projections, start.seed});
}

bool is_tandem_directory(const fs::path& directory) {
  return kind_of_directory(directory) == tandem_kind();
}

std::optional<CompanionRecord> recorded_primary(const fs::path& directory) {
  return recorded_companion(tandem_role(), directory);
}

fs::path tandem_primary(const fs::path& directory) {
  load_config(directory, tandem_kind());  // refuses what is no Tandem directory
  return companion_of(tandem_role(), directory);
}

void check_tandem_directory(const fs::path& directory) {
  const ModelDirectory opened(directory, tandem_kind());
  const auto primary = find_companion(tandem_role(), directory);
  if (!primary) return;
  require_present(tandem_role(), directory, *primary);
  const ModelDirectory other(*primary);
  require_tandem_pair(opened.config(), other.config(), {directory.string(), primary->string()});
  require_unchanged(tandem_role(), directory, *primary);
}

std::unique_ptr<TransformerModel> load_tandem_secondary(const fs::path& directory, const fs::path& primary_directory,
                                                        const LoadOptions& options) {
  const ModelDirectory opened(directory, tandem_kind());
  if (!primary_directory.empty()) {
    require_present(tandem_role(), directory, primary_directory);
    const ModelDirectory primary(primary_directory);
    require_tandem_pair(opened.config(), primary.config(), {directory.string(), primary_directory.string()});
    require_recorded(tandem_role(), directory, primary_directory);
  }
  return load_model(opened, options);
}

void save_tandem(const fs::path& directory, const TransformerModel& secondary, const TandemSaveOptions& options) {
  if ((options.primary == nullptr) == options.primary_directory.empty()) {
    throw std::logic_error("a Tandem is saved with a primary in memory or in a directory");
  }
  const fs::path place = require_free_place(directory);
  write_new_directory(place, [&](const fs::path& temporary) {
    SaveOptions files = options.files;
    const char* const name = tandem_role().role;
    const fs::path inside = temporary / name;
    if (options.primary != nullptr) {
      save_model(inside, *options.primary, options.files);
      if (options.record_primary) files.add_to_config = recording(tandem_role(), {name, model_hash(inside)});
    } else if (options.copy_primary) {
      copy_model(options.primary_directory, inside);
      files.add_to_config = recording(tandem_role(), {name, model_hash(inside)});
    } else {
      files.add_to_config = recording(tandem_role(), reference(options.primary_directory, place));
    }
    write_model_files(temporary, secondary, files);
  });
}

}  // namespace draftsmith::model
