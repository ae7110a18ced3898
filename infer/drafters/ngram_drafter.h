// The drafter `ngram`: predicts the next token from the last two, by a table of n-gram counts with back-off
// (data/ngrams/ngram_table.h). In greedy decoding a draft takes two binary searches. When sampling, logits are the
// table's distribution, so rejection keeps the target's distribution.
#pragma once

#include <filesystem>

#include "data/ngrams/ngram_table.h"
#include "infer/drafters/drafter.h"
#include "infer/drafters/loaded_drafter.h"

namespace draftsmith::data {
class NgramTable;  // data/ngrams/ngram_table.h
}

namespace draftsmith::infer {

class NgramDrafter : public Drafter {
 public:
  // `vocabulary` and `device` are the target's. Ids that the table lacks get no probability. The counts must outlive
  // the drafter and have at most `vocabulary` ids.
  NgramDrafter(const data::NgramCounts& counts, int64_t vocabulary, at::Device device)
      : counts_(counts), vocabulary_(vocabulary), device_(device) {}

  DrafterTraits traits() const override { return {.name = "ngram", .on_host = true}; }
  void prefill(const DraftBegin& begin) override;
  std::optional<std::vector<int64_t>> next_tokens(const DraftRequest& request) override;
  at::Tensor next_logits(const DraftRequest& request) override;

 private:
  data::NgramNodes context(const DraftRequest& request, size_t row) const;

  const data::NgramCounts& counts_;
  int64_t vocabulary_;
  at::Device device_;
  bool encoder_decoder_ = false;  // if so, a row's prefix is the start token, which the table calls the beginning
};

// Reads the table in a file. Errors: UserError, those of data::NgramTable.
SharedDrafter load_ngram_drafter(const std::filesystem::path& file);

// Makes a drafter of a table.
SharedDrafter as_drafter(std::shared_ptr<const data::NgramTable> table);

}  // namespace draftsmith::infer
