#include "infer/drafters/ngram_drafter.h"

#include <algorithm>
#include <limits>

namespace draftsmith::infer {

void NgramDrafter::prefill(const DraftBegin& begin) {
  encoder_decoder_ = begin.target_encoder != nullptr;
}

data::NgramNodes NgramDrafter::context(const DraftRequest& request, size_t row) const {
  const Row& committed = request.rows[row];
  const std::vector<int64_t>& drafted = request.on_host[row];
  const size_t first = encoder_decoder_ ? static_cast<size_t>(committed.prefix) : 0;
  // Returns the token `back` places before the next one.
  const auto token = [&](size_t back) {
    if (back <= drafted.size()) return drafted[drafted.size() - back];
    back -= drafted.size();
    const bool begins = back > committed.tokens.size() - first;
    return begins ? data::NgramContext::kBeginning : committed.tokens[committed.tokens.size() - back];
  };
  return counts_.find({.before = token(2), .last = token(1)});
}

std::optional<std::vector<int64_t>> NgramDrafter::next_tokens(const DraftRequest& request) {
  std::vector<int64_t> tokens(request.rows.size(), kNoProposal);
  for (size_t b = 0; b < tokens.size(); ++b) {
    if (request.active[b] != 0) tokens[b] = counts_.most_likely(context(request, b));
  }
  return tokens;
}

at::Tensor NgramDrafter::next_logits(const DraftRequest& request) {
  const auto rows = static_cast<int64_t>(request.rows.size());
  auto logits = at::empty({rows, vocabulary_}, at::kFloat);
  auto* row = logits.mutable_data_ptr<float>();
  for (size_t b = 0; b < request.rows.size(); ++b, row += vocabulary_) {
    if (request.active[b] == 0) {
      std::fill(row, row + vocabulary_, 0.0F);
      continue;
    }
    counts_.log_probabilities(context(request, b), {row, static_cast<size_t>(counts_.vocabulary())});
    std::fill(row + counts_.vocabulary(), row + vocabulary_, -std::numeric_limits<float>::infinity());
  }
  return logits.to(device_);
}

}  // namespace draftsmith::infer
