#include "infer/load_models.h"

#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/utf8.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"
#include "model/models/language_models.h"

namespace draftsmith::infer {

namespace fs = std::filesystem;

LoadedModel load_model_directory(const fs::path& directory, const model::LoadOptions& options) {
  LoadedModel loaded{model::load_language_model(directory, options), directory, nullptr};
  if (data::has_tokenizer(directory)) {
    loaded.tokenizer = data::load_tokenizer(directory);
    const model::TransformerModel& predicts = *model::transformers_of(*loaded.model).front();
    model::require_vocabulary_fits(predicts.config(), loaded.tokenizer->vocabulary(), directory.string());
  }
  return loaded;
}

const data::Tokenizer& tokenizer_of(const LoadedModel& loaded, std::string_view hint) {
  if (loaded.tokenizer) return *loaded.tokenizer;
  throw UserError({.where = loaded.directory.string(),
                   .what = "the model's directory has no tokenizer, so text cannot be read",
                   .expected = "spiece.model, tokenizer.model or tokenizer.json in the directory",
                   .found = "none of them",
                   .hint = std::string(hint)});
}

std::vector<int64_t> source_ids(const std::string& text, const data::Tokenizer& tokenizer,
                                const model::ModelInfo& info) {
  if (info.encoder_decoder) return target_ids(text, tokenizer, info);
  const auto before = tokenizer.frame().before;
  const auto pieces = tokenizer.encode(text);
  std::vector<int64_t> ids(before.begin(), before.end());
  ids.insert(ids.end(), pieces.begin(), pieces.end());
  return ids;
}

std::vector<int64_t> target_ids(const std::string& text, const data::Tokenizer& tokenizer,
                                const model::ModelInfo& info) {
  const auto pieces = tokenizer.encode(text);
  std::vector<int64_t> ids(pieces.begin(), pieces.end());
  if (!info.eos.empty()) ids.push_back(info.eos.front());
  return ids;
}

std::vector<std::vector<int64_t>> read_token_lines(const std::string& file, const LoadedModel& loaded, LineKind kind,
                                                   bool ids) {
  const model::ModelInfo& info = loaded.model->info();
  data::LineReader lines = data::open_lines(file);
  std::vector<std::vector<int64_t>> result;
  for (std::string line; lines.next(line);) {
    if (ids) {
      result.push_back(data::parse_token_ids(line, info.vocabulary, lines.where(), "omit --ids to read text"));
      continue;
    }
    if (const auto bad = invalid_utf8_offset(line)) data::throw_invalid_utf8(lines.where(), line, *bad);
    const data::Tokenizer& tokenizer = tokenizer_of(loaded, "give token ids with --ids");
    const bool source = kind == LineKind::kSource;
    result.push_back(source ? source_ids(line, tokenizer, info) : target_ids(line, tokenizer, info));
  }
  return result;
}

std::unique_ptr<model::Exits> find_exits(const fs::path& directory, const model::LanguageModel& model,
                                         const fs::path& given) {
  const auto* transformer = dynamic_cast<const model::TransformerModel*>(&model);
  if (transformer == nullptr) return nullptr;
  const fs::path exits = given.empty() ? model::exits_directory(directory) : given;
  if (given.empty() && !model::holds_exits(exits)) return nullptr;
  return model::load_exits(exits, directory, *transformer);
}

std::string fingerprint_of(const fs::path& path) {
  std::map<std::string, std::string> files;
  const auto add = [&](const fs::directory_entry& entry) {
    if (!entry.is_regular_file()) return;
    files[entry.path().filename()] =
        fmt::format("{}:{}", entry.file_size(), entry.last_write_time().time_since_epoch().count());
  };
  add(fs::directory_entry(path));
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::directory_iterator(path)) add(entry);
  }
  return fmt::format("{} {}", path.string(), files);
}

}  // namespace draftsmith::infer
