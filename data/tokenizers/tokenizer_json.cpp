#include "data/tokenizers/tokenizer_json.h"

#include <limits>

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/sha256.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "data/tokenizers/tokenizer_config.h"
#include "data/tokenizers/tokenizer_json_components.h"

namespace draftsmith::data {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kMaxJsonBytes = 256'000'000;

const json* member(const json& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || object[key].is_null()) return nullptr;
  return &object[key];
}

bool is_bpe(const json& whole) {
  const json* model = member(whole, "model");
  if (model == nullptr || !model->is_object()) return false;
  const json* type = member(*model, "type");
  return type != nullptr ? *type == "BPE" : member(*model, "merges") != nullptr;
}

std::vector<std::pair<std::string, std::string>> parse_merges(const json& merges, const std::string& where) {
  std::vector<std::pair<std::string, std::string>> result;
  if (!merges.is_array()) refuse({where, "has an unusable value", "a list of merges", brief(merges), ""});
  result.reserve(merges.size());
  for (const json& merge : merges) {
    if (merge.is_string()) {
      result.push_back(parse_merge(merge.get_ref<const std::string&>(), where));
      continue;
    }
    if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) {
      refuse({where, "a merge has an unusable value", "\"a b\" or [\"a\", \"b\"]", brief(merge), ""});
    }
    result.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
  }
  return result;
}

// Refuses options of the model that change ids and are not supported.
void check_model(const json& model, const std::string& where) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json* value = member(model, key);
    if (value != nullptr && (!value->is_string() || !value->get_ref<const std::string&>().empty())) {
      refuse({where, fmt::format("'{}' is not supported", key), "null or \"\"", brief(*value), ""});
    }
  }
  const json* dropout = member(model, "dropout");
  if (dropout != nullptr && *dropout != 0) {
    refuse({where, "'dropout' is not supported", "null", brief(*dropout), "ids would differ from call to call"});
  }
}

BpeDescription parse_model(const json& model, const std::string& where, bool byte_level) {
  check_model(model, where);
  const JsonComponent component(model, where);
  BpeDescription description;
  description.pieces = parse_vocabulary(component.need("vocab"), where + ".vocab");
  description.merges = parse_merges(component.need("merges"), where + ".merges");
  description.unk_token = component.text("unk_token", "");
  description.fuse_unk = component.flag("fuse_unk", false);
  description.byte_fallback = component.flag("byte_fallback", false);
  description.ignore_merges = component.flag("ignore_merges", false);
  description.byte_level = byte_level;
  return description;
}

std::vector<AddedToken> parse_added_tokens(const json& list, const std::string& where) {
  std::vector<AddedToken> tokens;
  if (!list.is_array()) refuse({where, "has an unusable value", "a list of tokens", brief(list), ""});
  for (const json& entry : list) {
    const JsonComponent component(entry, where);
    AddedToken token;
    token.content = component.text("content");
    token.id = static_cast<int32_t>(component.number("id", BpeModel::kMaxId));
    token.single_word = component.flag("single_word", false);
    token.lstrip = component.flag("lstrip", false);
    token.rstrip = component.flag("rstrip", false);
    token.normalized = component.flag("normalized", true);
    token.special = component.flag("special", false);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// Assigns roles to the special tokens, by the configuration files or else by the families' names: tokenizer.json itself
// does not name roles.
void name_special_tokens(BpeParts& parts) {
  const TokenizerConfig config = read_tokenizer_config(parts.file.parent_path());
  const auto first_known = [&](const std::string& named, std::initializer_list<const char*> usual) -> std::string {
    if (!named.empty()) return named;
    for (const char* name : usual) {
      for (const AddedToken& token : parts.added) {
        if (token.special && token.content == name) return name;
      }
    }
    return {};
  };
  parts.bos = first_known(config.bos, {"<|begin_of_text|>", "<s>", "<|endoftext|>"});
  parts.eos = first_known(config.eos, {"<|end_of_text|>", "</s>", "<|endoftext|>"});
  parts.pad = first_known(config.pad, {"<pad>", "<|padding|>"});
  parts.unk = first_known(config.unk, {"<unk>", "<|endoftext|>"});
}

}  // namespace

std::vector<std::pair<std::string, int32_t>> parse_vocabulary(const json& vocabulary, const std::string& where) {
  std::vector<std::pair<std::string, int32_t>> pieces;
  if (!vocabulary.is_object() || vocabulary.empty()) {
    refuse({where, "has an unusable value", "an object of pieces and their ids", brief(vocabulary), ""});
  }
  pieces.reserve(vocabulary.size());
  for (const auto& [piece, id] : vocabulary.items()) {
    const bool fits = id.is_number_unsigned() && id.get<uint64_t>() <= static_cast<uint64_t>(BpeModel::kMaxId);
    if (!fits) {
      refuse({where, "a token id is unusable", fmt::format("an integer from 0 to {}", BpeModel::kMaxId),
              fmt::format("'{}': {}", piece.substr(0, 60), brief(id)), ""});
    }
    pieces.emplace_back(piece, static_cast<int32_t>(id.get<uint64_t>()));
  }
  return pieces;
}

std::pair<std::string, std::string> parse_merge(std::string_view line, const std::string& where) {
  const size_t blank = line.find(' ');
  if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos) {
    refuse({where, "a merge has an unusable value", "two pieces with one blank between them",
            "'" + std::string(line.substr(0, 80)) + "'", ""});
  }
  return {std::string(line.substr(0, blank)), std::string(line.substr(blank + 1))};
}

bool is_bpe_json(const fs::path& file) {
  return is_bpe(load_json(file));
}

BpeParts read_tokenizer_json(const fs::path& file) {
  const std::string text = read_file(file, kMaxJsonBytes);
  const json whole = parse_json(text, file.string());
  const std::string where = file.string();
  if (!is_bpe(whole)) {
    const json* model = member(whole, "model");
    const json* type = model != nullptr ? member(*model, "type") : nullptr;
    refuse({where, "the model of this tokenizer is not supported", "a model of type BPE",
            type != nullptr ? brief(*type) : "no type",
            "models of type Unigram are read from their SentencePiece file (spiece.model, tokenizer.model)"});
  }
  BpeParts parts;
  parts.file = file;
  parts.files = with_configuration_files(file);
  parts.hash = sha256(text);
  bool byte_level = false;
  if (const json* value = member(whole, "normalizer")) {
    parse_normalizer(*value, where + ": normalizer", parts.normalizer);
  }
  if (const json* value = member(whole, "pre_tokenizer")) {
    byte_level = parse_pre_tokenizer(*value, where + ": pre_tokenizer", parts.pre_tokenizer);
  }
  if (const json* value = member(whole, "post_processor")) {
    parse_post_processor(*value, where + ": post_processor", parts.frame);
  }
  const json* decoder = member(whole, "decoder");
  parse_decoder(decoder != nullptr ? *decoder : json(), where + ": decoder", parts.decoder);
  parts.model = parse_model(whole["model"], where + ": model", byte_level);
  if (const json* value = member(whole, "added_tokens")) {
    parts.added = parse_added_tokens(*value, where + ": added_tokens");
  }
  name_special_tokens(parts);
  return parts;
}

std::unique_ptr<Tokenizer> load_tokenizer_json(const fs::path& file) {
  return make_bpe_tokenizer(read_tokenizer_json(file));
}

}  // namespace draftsmith::data
