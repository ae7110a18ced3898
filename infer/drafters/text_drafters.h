// Drafters that read the text alone: `ngram`, from a table of n-gram counts, and `lookup`, prompt look-up.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/ngrams/ngram_table.h"
#include "infer/drafters/drafter.h"

namespace draftsmith::infer {

// ---- N-grams

// The drafter `ngram`: predicts the next token from the last two, by a table of n-gram counts with back-off
// (data/ngrams/ngram_table.h). In greedy decoding a draft takes two binary searches. When sampling, logits are the
// table's distribution, so rejection keeps the target's distribution.
class NgramDrafter : public Drafter {
 public:
  // `vocabulary` and `device` are the target's. Ids that the table lacks get no probability. The counts must outlive
  // the drafter and have at most `vocabulary` ids.
  NgramDrafter(const data::NgramCounts& counts, int64_t vocabulary, at::Device device)
      : counts_(counts), vocabulary_(vocabulary), device_(device) {}

  DrafterTraits traits() const override { return traits_of(DrafterKind::kNgram); }
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

// ---- Prompt look-up
// The drafter `lookup`, prompt look-up: finds the last earlier occurrence of the longest suffix of the text so far, of
// up to `longest` tokens, in the source or in the generated text, and copies the tokens that followed it (methods.md
// §1). If even the last token is new it proposes nothing. Its q is one-hot.

class PromptLookupDrafter : public Drafter {
 public:
  // `longest` >= 1: tokens of the longest n-gram that is searched for.
  explicit PromptLookupDrafter(int64_t longest) : longest_(longest) {}

  DrafterTraits traits() const override { return traits_of(DrafterKind::kLookup); }
  void prefill(const DraftBegin& begin) override;
  std::optional<std::vector<int64_t>> next_tokens(const DraftRequest& request) override;
  // Throws std::logic_error: prompt look-up has no logits.
  at::Tensor next_logits(const DraftRequest& request) override;
  void observe(const DraftObservation& observation) override;
  void select_rows(std::span<const int64_t> rows) override;

 private:
  struct Text {
    std::vector<int64_t> tokens;  // the source, then the row's committed tokens
    int64_t begin = 0;            // position where the row's tokens begin
    int64_t committed = 0;        // tokens of the row that are in `tokens`, or a start token, which is not
    int64_t match = -1;           // position where this window began to copy; -1: nowhere

    void add(const Row& row);
    // Returns the position behind the last earlier occurrence of the longest possible suffix of the row's tokens, of up
    // to `longest`; -1 if even the last token is new. A token of the same text follows there, and occurrences do not
    // cross from the source into the row.
    int64_t follower(int64_t longest) const;
  };
  static int64_t copied(const Text& text, std::span<const int64_t> drafted);

  int64_t longest_;
  std::vector<Text> texts_;  // [B]
};

// Makes the drafter that looks for n-grams of up to `longest` tokens. It fits every target.
SharedDrafter lookup_drafter(int64_t longest);

}  // namespace draftsmith::infer
