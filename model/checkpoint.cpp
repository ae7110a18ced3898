#include "model/checkpoint.h"

#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "model/families/family.h"
#include "model/parameters.h"
#include "model/weight_files.h"

namespace draftsmith::model {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

at::ScalarType parameter_dtype(const std::string& parameter, at::ScalarType dtype) {
  return dtype == at::kHalf && keeps_fp32_in_half(parameter) ? at::kFloat : dtype;
}

std::string torch_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kDouble:
      return "float64";
    default:
      return "float32";
  }
}

ordered_json config_json(const Family& family, const TransformerConfig& config, at::ScalarType dtype) {
  ordered_json out;
  out["architectures"] = {family.architecture};
  out["model_type"] = family.name;
  out.update(family.write_config(config));
  out["dtype"] = torch_name(dtype);
  return out;
}

// What Transformers' T5Tokenizer needs to give SentencePiece's own ids plus </s>: no sentinel tokens of its own.
ordered_json tokenizer_config_json() {
  ordered_json out;
  out["tokenizer_class"] = "T5Tokenizer";
  out["extra_ids"] = 0;
  out["pad_token"] = "<pad>";
  out["eos_token"] = "</s>";
  out["unk_token"] = "<unk>";
  return out;
}

// Copies the tokenizer, and the settings beside it where it comes from a model directory.
void write_tokenizer(const fs::path& tokenizer, const fs::path& directory) {
  write_file_atomic(directory / "spiece.model", read_file(tokenizer));
  bool configured = false;
  for (const char* name : {"tokenizer_config.json", "tokenizer.json", "special_tokens_map.json", "added_tokens.json"}) {
    const fs::path beside = tokenizer.parent_path() / name;
    if (fs::is_regular_file(beside)) {
      write_file_atomic(directory / name, read_file(beside));
      configured = configured || std::string(name) == "tokenizer_config.json";
    }
  }
  if (!configured) {
    write_json(directory / "tokenizer_config.json", tokenizer_config_json());
  }
}

void write_contents(const fs::path& directory, const TransformerModel& model, const SaveOptions& options) {
  const TransformerConfig& config = model.config();
  const Family& family = family_named(config.family);
  std::vector<TensorToStore> tensors;
  for (const auto& [name, tensor] : model.parameters()) {
    tensors.push_back({family.stored_name(name, config), tensor, parameter_dtype(name, options.dtype)});
  }
  write_weight_files(directory, tensors, options.shard_bytes);
  write_json(directory / "config.json", config_json(family, config, options.dtype));
  write_json(directory / "generation_config.json",
             to_json(options.generation.value_or(default_generation_config(config))));
  if (!options.tokenizer.empty()) {
    write_tokenizer(options.tokenizer, directory);
  }
}

}  // namespace

std::unique_ptr<TransformerModel> load_model(const fs::path& directory, const LoadOptions& options) {
  const ModelDirectory opened(directory);
  std::map<std::string, at::Tensor> parameters;
  for (const auto& [parameter, stored] : opened.parameters()) {
    const at::ScalarType dtype = parameter_dtype(parameter.name, options.dtype);
    parameters[parameter.name] = opened.weights().read(stored, dtype).to(options.device);
  }
  auto model = std::make_unique<TransformerModel>(opened.config(), std::move(parameters));
  model->set_name(directory.string());
  model->to(options.device, options.dtype);
  if (options.pack) {
    model->pack();
  }
  return model;
}

GenerationConfig load_generation_config(const fs::path& directory) {
  const TransformerConfig config = load_config(directory);
  Problems problems;
  GenerationConfig generation =
      read_generation_config(directory, load_json(directory / "config.json"), config, problems);
  problems.throw_if_any();
  return generation;
}

void save_model(const fs::path& directory, const TransformerModel& model, const SaveOptions& options) {
  std::error_code status;
  if (fs::exists(directory, status) && !(fs::is_directory(directory, status) && fs::is_empty(directory, status))) {
    throw UserError({.where = directory.string(),
                     .what = "exists already and is not overwritten",
                     .expected = "a new directory",
                     .found = {},
                     .hint = "choose another name, or remove it"});
  }
  const fs::path target = directory.has_filename() ? directory : directory.parent_path();
  if (target.has_parent_path()) {
    make_directories(target.parent_path());
  }
  AtomicPath place(target);
  make_directories(place.temporary());
  write_contents(place.temporary(), model, options);
  place.commit();
}

void require_vocabulary_fits(const TransformerConfig& config, int64_t tokenizer_vocabulary, const std::string& where) {
  if (tokenizer_vocabulary > config.vocabulary) {
    throw UserError({.where = where,
                     .what = "the tokenizer has more ids than the model has embeddings",
                     .expected = fmt::format("at most {} (vocab_size of the model)", config.vocabulary),
                     .found = fmt::format("{}", tokenizer_vocabulary),
                     .hint = "tokenizer and model do not belong together"});
  }
}

}  // namespace draftsmith::model
