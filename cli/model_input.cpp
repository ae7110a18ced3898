#include "cli/model_input.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/loop/vocabulary.h"

namespace draftsmith::cli {

std::vector<std::vector<int64_t>> read_token_lines(const std::string& file, const infer::LoadedModel& loaded,
                                                   LineKind kind, bool ids) {
  const model::ModelInfo& info = loaded.model->info();
  data::LineReader lines = data::open_lines(file);
  std::vector<std::vector<int64_t>> result;
  for (std::string line; lines.next(line);) {
    if (ids) {
      result.push_back(data::parse_token_ids(line, info.vocabulary, lines.where(), "omit --ids to read text"));
      continue;
    }
    if (const auto bad = invalid_utf8_offset(line)) data::throw_invalid_utf8(lines.where(), line, *bad);
    const data::Tokenizer& tokenizer = infer::tokenizer_of(loaded, "give token ids with --ids");
    const bool source = kind == LineKind::kSource;
    result.push_back(source ? infer::source_ids(line, tokenizer, info) : infer::target_ids(line, tokenizer, info));
  }
  return result;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string text_of(const std::vector<int64_t>& ids, const data::Tokenizer& tokenizer) {
  return one_line(infer::text_of_known(tokenizer, ids));
}

std::string words_of(const std::vector<int64_t>& ids) {
  return fmt::format("{}", fmt::join(ids, " "));
}

}  // namespace draftsmith::cli
