#include "recipes/stages/decoded_sources.h"

#include <algorithm>

#include "base/error.h"

namespace draftsmith::recipes {

DecodedSources::DecodedSources(const data::Corpus& corpus, const model::ModelInfo& model,
                               const data::Tokenizer* tokenizer, int64_t prompt_tokens)
    : corpus_(corpus), prompt_tokens_(model.encoder_decoder ? 0 : prompt_tokens) {
  if (tokenizer != nullptr) before_ = tokenizer->frame().before;
  if (!model.encoder_decoder || !is_plain_text(corpus.info())) return;
  throw UserError({.where = corpus.file().string(),
                   .what = "the corpus has no sources, so an encoder-decoder would write the same for every example",
                   .expected = "pairs of source and target",
                   .found = "plain text",
                   .hint = "prepare the corpus with `source` and `target`, or decode with a decoder-only model"});
}

std::vector<int32_t> DecodedSources::operator()(int64_t example) const {
  const auto source = corpus_.source(example);
  const auto text = corpus_.target(example);
  const auto most = static_cast<int64_t>(text.size()) - 1;  // not the EOS
  const int64_t count = std::min(prompt_tokens_, most);
  if (!source.empty() || count <= 0) return {source.begin(), source.end()};
  std::vector<int32_t> prompt = before_;
  prompt.insert(prompt.end(), text.begin(), text.begin() + count);
  return prompt;
}

std::vector<std::vector<int64_t>> DecodedSources::of_range(int64_t first, int64_t last) const {
  std::vector<std::vector<int64_t>> sources;
  for (int64_t i = first; i < last; ++i) {
    const std::vector<int32_t> source = (*this)(i);
    sources.emplace_back(source.begin(), source.end());
  }
  return sources;
}

bool is_plain_text(const data::CorpusInfo& info) {
  return info.examples > 0 && info.source_tokens == 0;
}

}  // namespace draftsmith::recipes
