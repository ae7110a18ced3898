#include "model/files/checkpoint.h"

#include <map>
#include <system_error>

#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/registry.h"
#include "model/families/family.h"
#include "model/files/weight_files.h"
#include "model/files/write_weights.h"
#include "model/transformer/draft_vocabulary.h"
#include "model/transformer/parameters.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
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

namespace {

// Returns whether another file system begins at a directory.
bool is_mount_point(const fs::path& directory) {
  struct stat own {
  }, above{};
  return stat(directory.c_str(), &own) == 0 && stat((directory / "..").c_str(), &above) == 0 &&
         own.st_dev != above.st_dev;
}

}  // namespace

fs::path require_free_place(const fs::path& directory) {
  fs::path place = directory.has_filename() ? directory : directory.parent_path();
  std::error_code status;
  if (fs::is_symlink(place, status) && fs::exists(place, status)) place = fs::canonical(place);
  if (fs::exists(place, status) && !(fs::is_directory(place, status) && fs::is_empty(place, status))) {
    throw UserError({.where = place.string(),
                     .what = "exists already and is not overwritten",
                     .expected = "a new directory",
                     .found = {},
                     .hint = "choose another name, or remove it"});
  }
  if (fs::equivalent(place, fs::current_path(status), status) || is_mount_point(place)) {
    throw UserError({place.string(), "a directory in use cannot be replaced by a finished one", "a new directory",
                     "the current directory, or one where another file system begins", "name a new directory in it"});
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

namespace {

constexpr const char* kSettings = "tokenizer_config.json";
constexpr const char* kConfig = "config.json";

// Returns settings for Transformers: T5's without sentinel tokens, Llama's without BOS, since the prompts of models of
// ours begin with their text. It takes Llama's for bpe; an export writes tokenizer.json for others.
ordered_json settings_for(const TransformerConfig& config) {
  ordered_json out = {{"pad_token", "<pad>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}};
  if (config.encoder_decoder) {
    out.update({{"tokenizer_class", "T5Tokenizer"}, {"extra_ids", 0}});
  } else {
    out.update({{"tokenizer_class", "LlamaTokenizer"},
                {"add_bos_token", false},
                {"add_eos_token", false},
                {"bos_token", "</s>"}});
  }
  return out;
}

// Returns the name in the directory: SentencePiece files get the name that the family's readers expect.
std::string name_in_directory(const fs::path& tokenizer, const TransformerConfig& config) {
  const std::string name = tokenizer.filename().string();
  if (tokenizer.extension() != ".model" || name == "sentencepiece.bpe.model") return name;
  return config.encoder_decoder ? "spiece.model" : "tokenizer.model";
}

}  // namespace

void write_tokenizer(const fs::path& tokenizer, const TransformerConfig& config, const fs::path& directory) {
  const std::string name = name_in_directory(tokenizer, config);
  if (name != kConfig) write_file_atomic(directory / name, read_file(tokenizer));  // kConfig: a ByT5 without a file
  for (const char* other : {kSettings, "tokenizer.json", "tokenizer.model", "special_tokens_map.json",
                            "added_tokens.json", "vocab.json", "merges.txt", "target.spm", "chat_template.jinja"}) {
    const fs::path beside = tokenizer.parent_path() / other;
    if (other == name || beside == tokenizer || !fs::is_regular_file(beside)) continue;
    write_file_atomic(directory / other, read_file(beside));
  }
  const bool pieces = name == "spiece.model" || name == "tokenizer.model";
  const bool copied = fs::exists(directory / kSettings);
  // A class that stands in the model's configuration alone is not in ours; its own settings hold.
  const fs::path file = tokenizer.parent_path() / kConfig;
  const json model = fs::is_regular_file(file) ? load_json(file) : json();
  const json named = model.is_object() ? model.value("tokenizer_class", json()) : json();
  ordered_json settings = ordered_json::object();
  if (copied) settings = load_json(directory / kSettings);
  if (!copied && pieces && !named.is_string()) settings = settings_for(config);
  const bool lacks = named.is_string() && !(copied && settings.contains("tokenizer_class"));
  if (lacks) settings["tokenizer_class"] = named;
  if (lacks || (!copied && pieces)) write_json(directory / kSettings, settings);
}

namespace {

void copy_one(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::copy_file(from, to, error);
  if (error) {
    throw RunError({.where = to.string(), .what = "a file of the model could not be copied", .found = error.message()});
  }
  fs::permissions(to, fs::perms::owner_write, fs::perm_options::add, error);
}

void copy_files(const fs::path& from, const fs::path& to) {
  make_directories(to);
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".") || name == "README.md" || !entry.is_regular_file()) continue;
    copy_one(entry.path(), to / name);
  }
}

// Copies the shards that an index names in sub-folders.
void copy_deeper_shards(const fs::path& from, const fs::path& to) {
  const WeightFiles weights(from);
  for (const auto& file : weights.files()) {
    const fs::path relative = file->file().lexically_relative(from);
    if (!relative.has_parent_path()) continue;
    make_directories(to / relative.parent_path());
    copy_one(file->file(), to / relative);
  }
}

}  // namespace

void copy_model(const fs::path& from, const fs::path& to) {
  const fs::path own = from / "draftsmith";
  copy_files(from, to);
  copy_deeper_shards(from, to);
  if (!fs::is_directory(own)) return;
  copy_files(own, to / "draftsmith");
  for (const auto& entry : fs::directory_iterator(own)) {
    if (entry.is_directory()) copy_files(entry.path(), to / "draftsmith" / entry.path().filename());
  }
}

}  // namespace draftsmith::model
