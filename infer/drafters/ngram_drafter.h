// The drafter `ngram`: the next token from the last two alone, by a table of n-gram counts with back-off
// (data/ngrams/ngram_counts.h). In greedy decoding a draft is two binary searches; when sampling it gives the table's
// distribution, which is a true one, so rejection keeps the target's.
#pragma once

#include "data/ngrams/ngram_counts.h"
#include "infer/drafters/drafter.h"

namespace draftsmith::infer {

class NgramDrafter : public Drafter {
 public:
  // Logits are of the target's `vocabulary` on its `device`; ids that the table lacks get no probability. The counts
  // must outlive the drafter and have at most `vocabulary` ids.
  NgramDrafter(const data::NgramCounts& counts, int64_t vocabulary, at::Device device)
      : counts_(counts), vocabulary_(vocabulary), device_(device) {}

  DrafterTraits traits() const override { return {.name = "ngram", .on_host = true}; }
  void encode(const DraftBegin&) override {}
  void prefill(const DraftBegin& begin) override;
  std::optional<std::vector<int64_t>> next_tokens(const DraftRequest& request) override;
  at::Tensor next_logits(const DraftRequest& request) override;
  void observe(const DraftObservation&) override {}
  void select_rows(std::span<const int64_t>) override {}

 private:
  data::NgramNodes context(const DraftRequest& request, size_t row) const;

  const data::NgramCounts& counts_;
  int64_t vocabulary_;
  at::Device device_;
  bool encoder_decoder_ = false;  // a row's prefix is then the start token, which the table calls the beginning
};

}  // namespace draftsmith::infer
