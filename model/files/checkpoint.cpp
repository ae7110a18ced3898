#include "model/files/checkpoint.h"

#include <map>
#include <system_error>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/registry.h"
#include "model/families/family.h"
#include "model/files/copy_model.h"
#include "model/files/write_weights.h"
#include "model/transformer/draft_vocabulary.h"
#include "model/transformer/parameters.h"

namespace draftsmith::model {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

const NamedValues<at::ScalarType>& torch_types() {
  static const NamedValues<at::ScalarType> kTypes(
      "type", {{"float32", at::kFloat}, {"float16", at::kHalf}, {"bfloat16", at::kBFloat16}, {"float64", at::kDouble}});
  return kTypes;
}

ordered_json config_json(const Family& family, const TransformerConfig& config, const SaveOptions& options) {
  const ModelKind& kind = kind_of(config);
  ordered_json out;
  out["architectures"] = {kind.prefix + family.architecture};
  out["model_type"] = kind.model_type.empty() ? family.name : kind.model_type;
  out.update(write_config(family, config));
  out["dtype"] = torch_types().name(options.dtype);
  if (kind.keys != nullptr) {
    ConfigKeys keys(out, true);
    TransformerConfig written = config;
    kind.keys(keys, written);
  }
  if (options.companion) {
    out[kind.companion->key][kind.companion->role] = {{"path", options.companion->path},
                                                      {"sha256", options.companion->hash}};
  }
  return out;
}

// Returns the tensors as the family's files hold them, joined where these join parameters.
std::vector<TensorToStore> tensors_to_store(const TransformerModel& model, const Family& family, at::ScalarType dtype) {
  const TransformerConfig& config = model.config();
  std::map<std::string, std::vector<at::Tensor>> waiting;  // parts of a joined tensor
  std::vector<TensorToStore> tensors;
  for (const ParameterSpec& spec : expected_parameters(config)) {
    const StoredTensor where = stored_parameter(family, spec.name, config);
    std::vector<at::Tensor>& parts = waiting[where.name];
    parts.push_back(model.parameters().at(spec.name).detach());
    if (static_cast<int64_t>(parts.size()) < where.parts) continue;
    tensors.push_back(
        {where.name, join_parameters(parts, where, config.heads), parameter_dtype(config, spec.name, dtype)});
    waiting.erase(where.name);
  }
  if (family.stores_sinusoids) {
    for (const std::string& name : family.sinusoids) tensors.push_back({name, sinusoids(config), dtype});
  }
  return tensors;
}

}  // namespace

void write_model_files(const fs::path& directory, const TransformerModel& model, const SaveOptions& options) {
  const TransformerConfig& config = model.config();
  const Family& family = families().at(config.family);
  write_weight_files(directory, tensors_to_store(model, family, options.dtype), options.shard_bytes);
  ordered_json json = config_json(family, config, options);
  write_draft_vocabulary(config, directory, json);
  write_json(directory / "config.json", json);
  write_json(directory / "generation_config.json",
             to_json(options.generation.value_or(default_generation_config(config))));
  if (!options.tokenizer.empty()) {
    write_tokenizer(options.tokenizer, config, directory);
  }
}

void save_model(const fs::path& directory, const TransformerModel& model, const SaveOptions& options) {
  write_new_directory(directory, [&](const fs::path& temporary) { write_model_files(temporary, model, options); });
}

fs::path require_free_place(const fs::path& directory) {
  fs::path place = directory.has_filename() ? directory : directory.parent_path();
  std::error_code status;
  if (fs::exists(place, status) && !(fs::is_directory(place, status) && fs::is_empty(place, status))) {
    throw UserError({.where = place.string(),
                     .what = "exists already and is not overwritten",
                     .expected = "a new directory",
                     .found = {},
                     .hint = "choose another name, or remove it"});
  }
  return place;
}

void write_new_directory(const fs::path& directory, const std::function<void(const fs::path& temporary)>& fill) {
  const fs::path target = require_free_place(directory);
  if (target.has_parent_path()) make_directories(target.parent_path());
  AtomicPath place(target);
  make_directories(place.temporary());
  fill(place.temporary());
  place.commit();
}

}  // namespace draftsmith::model
