#include "model/files/copy_model.h"

#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "model/files/weight_files.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kSettings = "tokenizer_config.json";

// Returns settings with which Transformers gives SentencePiece's own ids: T5's without sentinel tokens, Llama's without
// BOS, since the prompts of models of ours begin with their text.
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
  if (name == "config.json") {  // a ByT5 whose own configuration alone says so
    write_json(directory / kSettings, ordered_json{{"tokenizer_class", "ByT5Tokenizer"}});
    return;
  }
  write_file_atomic(directory / name, read_file(tokenizer));
  for (const char* other : {kSettings, "tokenizer.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
                            "merges.txt", "target.spm"}) {
    const fs::path beside = tokenizer.parent_path() / other;
    if (other != name && fs::is_regular_file(beside)) write_file_atomic(directory / other, read_file(beside));
  }
  if (!fs::exists(directory / kSettings) && (name == "spiece.model" || name == "tokenizer.model")) {
    write_json(directory / kSettings, settings_for(config));
  }
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
  for (const auto& entry : fs::directory_iterator(from)) {
    if (entry.path().string().ends_with(".index.json")) {
      copy_deeper_shards(from, to);
      break;
    }
  }
  if (!fs::is_directory(own)) return;
  copy_files(own, to / "draftsmith");
  for (const auto& entry : fs::directory_iterator(own)) {
    if (entry.is_directory()) copy_files(entry.path(), to / "draftsmith" / entry.path().filename());
  }
}

}  // namespace draftsmith::model
