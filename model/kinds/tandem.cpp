#include "model/kinds/tandem.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "model/files/copy_model.h"
#include "model/files/directory_parameters.h"
#include "model/files/model_hash.h"
#include "model/files/new_directory.h"
#include "model/transformer/initialization.h"
#include "model/transformer/parameters.h"

namespace draftsmith::model {

namespace {

namespace fs = std::filesystem;

constexpr const char* kInside = "primary";

std::string kind_of_model(const TransformerConfig& config) {
  return config.encoder_decoder ? "encoder-decoder" : "decoder-only";
}

UserError no_primary(const fs::path& directory, const fs::path& primary) {
  return UserError({.where = directory.string(),
                    .what = "the primary of this Tandem secondary is not there",
                    .expected = "a model directory " + primary.string(),
                    .found = "nothing",
                    .hint = "name the primary where it lies now (--model), or train the Tandem with copy_primary"});
}

// Resolves a path as the system does: after a link, `..` leads out of the directory that the link points to.
fs::path resolved(const fs::path& path) {
  std::error_code error;
  const fs::path found = fs::weakly_canonical(path, error);
  return error ? path.lexically_normal() : found;
}

// Refuses another primary than the recorded one by its hash. A primary inside the directory belongs to it.
void require_recorded(const fs::path& directory, const fs::path& primary) {
  const auto record = recorded_primary(directory);
  if (!record) return;
  const fs::path own = directory / record->path;
  std::error_code status;
  if (record->path == kInside && fs::equivalent(own, primary, status)) return;
  if (const std::string hash = model_hash(primary); hash != record->hash) {
    throw UserError({.where = directory.string(),
                     .what = "this Tandem secondary belongs to another primary",
                     .expected = fmt::format("{} (sha256 {})", resolved(own).string(), record->hash.substr(0, 16)),
                     .found = fmt::format("{} (sha256 {})", primary.string(), hash.substr(0, 16)),
                     .hint = "decode with the primary that it was trained with, or train it anew"});
  }
}

// Returns what names the primary in config.json.
std::function<void(nlohmann::ordered_json&)> recording(PrimaryRecord primary) {
  return [primary = std::move(primary)](nlohmann::ordered_json& config) { write_primary_record(primary, config); };
}

at::Tensor unit_matrix(at::IntArrayRef shape) {
  return at::eye(shape[0], shape[1], at::kFloat);
}

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
      .read = read_tandem_config,
      .write = write_tandem_config,
      .remove_paths = remove_primary_path,
      .check_directory = check_tandem_directory};
  return kTandem;
}

std::vector<int64_t> default_layer_map(int64_t secondary_layers, int64_t primary_layers) {
  std::vector<int64_t> map;
  for (int64_t j = 0; j < secondary_layers; ++j) map.push_back((j + 1) * primary_layers / secondary_layers);
  return map;
}

void require_tandem_pair(const TransformerConfig& secondary, const TransformerConfig& primary,
                         const TandemNames& names) {
  Problems problems;
  const auto same = [&](const char* what, const std::string& own, const std::string& other) {
    if (own == other) return;
    problems.add({.where = names.secondary,
                  .what = fmt::format("disagrees with its primary {} about {}", names.primary, what),
                  .expected = other + ", as the primary",
                  .found = own});
  };
  const auto number = [](int64_t value) { return std::to_string(value); };
  same("the kind of model", kind_of_model(secondary), kind_of_model(primary));
  // Vocabularies may differ by ids that pad them; where there are tokenizers, those are compared. Both models read the
  // secondary's padding.
  if (secondary.pad >= primary.vocabulary) {
    problems.add({.where = names.secondary,
                  .what = fmt::format("its primary {} lacks the padding token", names.primary),
                  .expected = fmt::format("more than {} ids", secondary.pad),
                  .found = number(primary.vocabulary)});
  }
  same("the ids that end a text", fmt::format("{}", fmt::join(secondary.eos, ", ")),
       fmt::format("{}", fmt::join(primary.eos, ", ")));
  // A decoder-only model is given it too, where a prompt is empty.
  same("the start id", number(secondary.decoder_start), number(primary.decoder_start));
  if (secondary.tandem_secondary()) {
    same("the primary's width", number(secondary.tandem.primary_width), number(primary.width));
    same("the primary's layers", number(secondary.tandem.primary_layers), number(primary.decoder_layers));
  }
  problems.throw_if_any();
}

TransformerConfig tandem_config(TransformerConfig secondary, const TransformerConfig& primary, const TandemStart& start,
                                const TandemNames& names) {
  require_tandem_pair(secondary, primary, names);
  secondary.encoder_layers = 0;
  secondary.tandem = {primary.width, primary.decoder_layers, start.layer_map, start.block};
  if (start.layer_map.empty()) {
    secondary.tandem.layer_map = default_layer_map(secondary.decoder_layers, primary.decoder_layers);
  }
  Problems problems;
  check_tandem_shape(secondary.tandem, secondary.decoder_layers, names.secondary, problems);
  problems.throw_if_any();
  return secondary;
}

std::unique_ptr<TransformerModel> make_tandem_secondary(const TransformerModel& secondary,
                                                        const TransformerModel& primary, const TandemStart& start) {
  const TransformerConfig config =
      tandem_config(secondary.config(), primary.config(), start, {secondary.info().name, primary.info().name});
  const bool unit = start.projections == ProjectionStart::kIdentity;
  std::map<std::string, at::Tensor> parameters;
  for (const ParameterSpec& spec : expected_parameters(config)) {
    const auto own = secondary.parameters().find(spec.name);
    const at::Tensor value = own != secondary.parameters().end() ? own->second.detach().clone()
                             : unit                              ? unit_matrix(spec.shape)
                                                                 : initial_projection(spec, start.seed);
    parameters[spec.name] = value.to(
        secondary.info().device, own != secondary.parameters().end() ? value.scalar_type() : secondary.info().dtype);
  }
  auto made = std::make_unique<TransformerModel>(config, std::move(parameters));
  made->set_name(secondary.info().name);
  return made;
}

bool is_tandem_directory(const fs::path& directory) {
  return kind_of_directory(directory) == tandem_kind();
}

std::optional<PrimaryRecord> recorded_primary(const fs::path& directory) {
  const fs::path file = directory / "config.json";
  return read_primary_record(load_json(file, {.max_bytes = 16'000'000}), file.string());
}

fs::path tandem_primary(const fs::path& directory) {
  load_config(directory, tandem_kind());  // refuses what is no Tandem directory
  const auto record = recorded_primary(directory);
  if (record) return resolved(directory / record->path);
  if (const fs::path inside = directory / kInside; fs::is_directory(inside)) return inside;
  throw UserError({.where = directory.string(),
                   .what = "this Tandem secondary names no primary",
                   .expected = "draftsmith_tandem: primary in config.json, as finished training writes it",
                   .hint = "name the primary (--model)"});
}

void check_tandem_directory(const fs::path& directory) {
  const ModelDirectory opened(directory, tandem_kind());
  const auto record = recorded_primary(directory);
  if (!record && !fs::is_directory(directory / kInside)) return;
  const fs::path primary = tandem_primary(directory);
  if (!fs::is_directory(primary)) throw no_primary(directory, primary);
  const ModelDirectory other(primary);
  require_tandem_pair(opened.config(), other.config(), {directory.string(), primary.string()});
  if (!record) return;
  if (const std::string hash = model_hash(primary); hash != record->hash) {
    throw UserError({.where = directory.string(),
                     .what = "its primary has changed since this Tandem was written",
                     .expected = fmt::format("{} with sha256 {}", primary.string(), record->hash.substr(0, 16)),
                     .found = "sha256 " + hash.substr(0, 16)});
  }
}

std::unique_ptr<TransformerModel> load_tandem_secondary(const fs::path& directory, const fs::path& primary_directory,
                                                        const LoadOptions& options) {
  const ModelDirectory opened(directory, tandem_kind());
  if (!primary_directory.empty()) {
    if (!fs::is_directory(primary_directory)) throw no_primary(directory, primary_directory);
    const ModelDirectory primary(primary_directory);
    require_tandem_pair(opened.config(), primary.config(), {directory.string(), primary_directory.string()});
    require_recorded(directory, primary_directory);
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
    const fs::path inside = temporary / kInside;
    if (options.primary != nullptr) {
      save_model(inside, *options.primary, options.files);
      if (options.record_primary) files.add_to_config = recording({kInside, model_hash(inside)});
    } else if (options.copy_primary) {
      copy_model(options.primary_directory, inside);
      files.add_to_config = recording({kInside, model_hash(inside)});
    } else {
      const fs::path from = fs::weakly_canonical(fs::absolute(place));
      files.add_to_config = recording({fs::relative(fs::canonical(options.primary_directory), from).string(),
                                       model_hash(options.primary_directory)});
    }
    write_model_files(temporary, secondary, files);
  });
}

}  // namespace draftsmith::model
