#include "cli/model_input.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "data/text/line_reader.h"
#include "data/tokenizers/load_tokenizer.h"
#include "data/tokenizers/token_ids.h"
#include "infer/loop/vocabulary.h"

namespace draftsmith::cli {

namespace {

namespace fs = std::filesystem;

const data::Tokenizer& tokenizer_of(const LoadedModel& loaded) {
  if (loaded.tokenizer) return *loaded.tokenizer;
  throw UserError({.where = loaded.model->info().name,
                   .what = "the model's directory has no tokenizer, so text cannot be read",
                   .expected = "spiece.model, tokenizer.model or tokenizer.json in the directory",
                   .found = "none of them",
                   .hint = "give token ids with --ids"});
}

}  // namespace

LoadedModel load_with_tokenizer(const fs::path& directory, const model::LoadOptions& options) {
  LoadedModel loaded{model::load_model(directory, options), nullptr};
  if (data::has_tokenizer(directory)) {
    loaded.tokenizer = data::load_tokenizer(directory);
    model::require_vocabulary_fits(loaded.model->config(), loaded.tokenizer->vocabulary(), directory.string());
  }
  return loaded;
}

std::vector<std::vector<int64_t>> read_token_lines(const std::string& file, const LoadedModel& loaded, LineKind kind,
                                                   bool ids) {
  const model::ModelInfo& info = loaded.model->info();
  data::LineReader lines(file == "-" ? "/dev/stdin" : file);
  std::vector<std::vector<int64_t>> result;
  for (std::string line; lines.next(line);) {
    if (ids) {
      result.push_back(data::parse_token_ids(line, info.vocabulary, lines.where(), "omit --ids to read text"));
      continue;
    }
    if (const auto bad = invalid_utf8_offset(line)) data::throw_invalid_utf8(lines.where(), line, *bad);
    const data::Tokenizer& tokenizer = tokenizer_of(loaded);
    const auto pieces = tokenizer.encode(line);
    const bool prompt = kind == LineKind::kSource && !info.encoder_decoder;
    const auto before = prompt ? tokenizer.frame().before : std::vector<int32_t>{};
    result.emplace_back(before.begin(), before.end());
    result.back().insert(result.back().end(), pieces.begin(), pieces.end());
    const bool ends = kind == LineKind::kTarget || info.encoder_decoder;
    if (ends && !info.eos.empty()) result.back().push_back(info.eos.front());
  }
  return result;
}

std::string text_of(const std::vector<int64_t>& ids, const data::Tokenizer& tokenizer) {
  std::string text = infer::text_of_known(tokenizer, ids);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string words_of(const std::vector<int64_t>& ids) {
  return fmt::format("{}", fmt::join(ids, " "));
}

}  // namespace draftsmith::cli
