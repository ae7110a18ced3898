#include "model/models/shared_encoder.h"

#include "base/json.h"
#include "model/families/common.h"
#include "model/files/model_directory.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

constexpr CompanionRole kRole = {.key = "draftsmith_shared_encoder",
                                 .role = "target",
                                 .reader = "drafter that shares its target's encoder",
                                 .remedy = ""};

void read_shared_encoder(ConfigReader& reader, const std::string& /*where*/, TransformerConfig& config,
                         Problems& /*problems*/) {
  const nlohmann::json* object = kind_object(reader, kRole.key);
  if (object == nullptr) return;
  config.shared_encoder_width = reader.within(*object).get_int("width", {1, kMaxWidth});
  if (!config.encoder_decoder) {
    reader.wrong(kRole.key, "is not for decoder-only models", "an encoder-decoder architecture");
  }
  if (config.encoder_layers != 0) {
    reader.wrong("num_layers", "gives a drafter an encoder that reads its target's", "0");
  }
}

void write_shared_encoder(const TransformerConfig& config, nlohmann::ordered_json& config_json) {
  config_json[kRole.key]["width"] = config.shared_encoder_width;
}

}  // namespace

const ModelKind& shared_encoder_kind() {
  static const ModelKind kSharedEncoder = {
      .name = "a drafter that shares its target's encoder",
      .prefix = "DraftsmithSharedEncoder",
      .model_type = "draftsmith_shared_encoder",
      .hint =
          "it has no encoder of its own: decode with its target and this as the drafter "
          "(--model TARGET --drafter DIR)",
      .describes = [](const TransformerConfig& config) { return config.shares_encoder(); },
      .read = read_shared_encoder,
      .write = write_shared_encoder,
      .remove_paths = [](nlohmann::json& config_json) { remove_companion_path(kRole, config_json); },
      .check_directory = check_shared_encoder_directory};
  return kSharedEncoder;
}

void require_shared_encoder_pair(const TransformerConfig& drafter, const TransformerConfig& target,
                                 const PairNames& names) {
  Problems problems;
  if (!target.has_encoder()) {
    problems.add({.where = names.companion,
                  .what = "has no encoder that a drafter could share",
                  .expected = "an encoder-decoder (T5, mT5)",
                  .found = target.family});
  }
  check_pair(kRole, drafter, target, names, problems);
  if (drafter.shares_encoder()) {
    require_same(kRole, names, "the width of its encoder states",
                 {std::to_string(drafter.shared_encoder_width), std::to_string(target.width)}, problems);
  }
  problems.throw_if_any();
}

std::unique_ptr<TransformerModel> make_shared_encoder_drafter(const TransformerModel& ordinary,
                                                              const TransformerModel& target,
                                                              const ProjectionOptions& projection) {
  require_shared_encoder_pair(ordinary.config(), target.config(), {ordinary.info().name, target.info().name});
  TransformerConfig config = ordinary.config();
  config.encoder_layers = 0;
  config.shared_encoder_width = target.config().width;
  return with_projections(config, ordinary, projection);
}

bool is_shared_encoder_directory(const fs::path& directory) {
  return kind_of_directory(directory) == shared_encoder_kind();
}

std::optional<CompanionRecord> recorded_target(const fs::path& directory) {
  return recorded_companion(kRole, directory);
}

fs::path shared_encoder_target(const fs::path& directory) {
  load_config(directory, shared_encoder_kind());  // refuses a directory of another kind
  return companion_of(kRole, directory);
}

void check_shared_encoder_directory(const fs::path& directory) {
  const ModelDirectory opened(directory, shared_encoder_kind());
  const auto target = find_companion(kRole, directory);
  if (!target) return;
  require_present(kRole, directory, *target);
  const ModelDirectory other(*target);
  require_shared_encoder_pair(opened.config(), other.config(), {directory.string(), target->string()});
  require_unchanged(kRole, directory, *target);
}

std::unique_ptr<TransformerModel> load_shared_encoder(const fs::path& directory, const fs::path& target_directory,
                                                      const LoadOptions& options) {
  const ModelDirectory opened(directory, shared_encoder_kind());
  if (!target_directory.empty()) {
    require_present(kRole, directory, target_directory);
    const ModelDirectory target(target_directory);
    require_shared_encoder_pair(opened.config(), target.config(), {directory.string(), target_directory.string()});
    require_recorded(kRole, directory, target_directory);
  }
  return load_model(opened, options);
}

void save_shared_encoder(const fs::path& directory, const TransformerModel& drafter, const fs::path& target_directory,
                         const SaveOptions& options) {
  const fs::path place = require_free_place(directory);
  write_new_directory(place, [&](const fs::path& temporary) {
    SaveOptions files = options;
    files.add_to_config = recording(kRole, reference(target_directory, place));
    write_model_files(temporary, drafter, files);
  });
}

}  // namespace draftsmith::model
