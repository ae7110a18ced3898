#include "infer/drafters/prompt_lookup_drafter.h"

#include <stdexcept>
#include <utility>

namespace draftsmith::infer {

void PromptLookupDrafter::Text::add(const Row& row) {
  for (; committed < row.length(); ++committed) index.add(row.tokens[static_cast<size_t>(committed)]);
}

void PromptLookupDrafter::prefill(const DraftBegin& begin) {
  const bool encoder_decoder = begin.target_encoder != nullptr;
  texts_.clear();
  texts_.reserve(begin.rows.size());
  for (size_t b = 0; b < begin.rows.size(); ++b) {
    if (b % static_cast<size_t>(begin.samples) != 0) {  // another sample of the same source
      texts_.push_back(texts_.back());
      continue;
    }
    const Row& row = begin.rows[b];
    Text& text = texts_.emplace_back(Text{.index = SuffixIndex(longest_)});
    for (const int64_t token : row.source) text.index.add(token);
    text.index.begin_text();
    if (encoder_decoder) text.committed = row.prefix;  // the start token means nothing in a text
    text.add(row);
  }
}

// The next token of the copy, which may run into the tokens that it has drafted itself.
int64_t PromptLookupDrafter::copied(const Text& text, std::span<const int64_t> drafted) {
  if (text.match < 0) return kNoProposal;
  const int64_t position = text.match + static_cast<int64_t>(drafted.size());
  const int64_t beyond = position - text.index.size();
  if (beyond >= 0) return drafted[static_cast<size_t>(beyond)];
  const int64_t token = text.index.token(position);
  return token < 0 ? kNoProposal : token;
}

std::optional<std::vector<int64_t>> PromptLookupDrafter::next_tokens(const DraftRequest& request) {
  std::vector<int64_t> tokens(request.rows.size(), kNoProposal);
  for (size_t b = 0; b < tokens.size(); ++b) {
    if (request.active[b] == 0) continue;
    if (request.on_host[b].empty()) texts_[b].match = texts_[b].index.follower();
    tokens[b] = copied(texts_[b], request.on_host[b]);
  }
  return tokens;
}

at::Tensor PromptLookupDrafter::next_logits(const DraftRequest&) {
  throw std::logic_error("prompt look-up has no logits");
}

void PromptLookupDrafter::observe(const DraftObservation& observation) {
  for (size_t b = 0; b < texts_.size(); ++b) texts_[b].add(observation.rows[b]);
}

void PromptLookupDrafter::select_rows(std::span<const int64_t> rows) {
  std::vector<Text> kept;
  kept.reserve(rows.size());
  for (const int64_t row : rows) kept.push_back(std::move(texts_[static_cast<size_t>(row)]));
  texts_ = std::move(kept);
}

}  // namespace draftsmith::infer
