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

// An index of growing texts by the last place of every n-gram up to a length, found by hash. Adding a token and a
// search take constant time. N-grams do not cross from one text into the next. Tokens cannot be removed, so drafted
// tokens must not be added before they are committed.
class SuffixIndex {
 public:
  // Indexes n-grams of 1..longest tokens.
  explicit SuffixIndex(int64_t longest) : longest_(longest), slots_(kFewest) {}

  // Begins another text.
  void begin_text() { text_ = size(); }
  void add(int64_t token);
  // Returns the position behind the last earlier occurrence of the longest possible suffix of the current text, where a
  // token of the same text follows; -1 if even the last token is new.
  int64_t follower() const;
  // Returns the token at `position`, which is follower() or one of the positions after it; -1 behind the text's end.
  int64_t token(int64_t position) const;
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  static constexpr size_t kFewest = 64;
  struct Slot {
    uint64_t hash = 0;
    int64_t end = -1;  // position of the n-gram's last token; -1: free
  };
  static uint64_t extended(uint64_t hash, int64_t token);
  // Returns the slot that holds the hash or would hold it.
  size_t place(uint64_t hash) const;
  void put(uint64_t hash, int64_t end);
  void grow();
  bool equal(int64_t end, int64_t other, int64_t length) const;

  int64_t longest_;
  int64_t text_ = 0;  // position where the current text begins
  std::vector<int64_t> tokens_;
  std::vector<int64_t> begins_;  // position where each token's text begins
  std::vector<Slot> slots_;      // a power of two, at most half of them used
  size_t used_ = 0;
};

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
  // A row's source and committed tokens.
  struct Text {
    SuffixIndex index;
    int64_t committed = 0;  // tokens of the row that are in the index, or a start token, which is not
    int64_t match = -1;     // position where this window began to copy
    void add(const Row& row);
  };
  static int64_t copied(const Text& text, std::span<const int64_t> drafted);

  int64_t longest_;
  std::vector<Text> texts_;  // [B]
};

// Makes the drafter that looks for n-grams of up to `longest` tokens. It fits every target.
SharedDrafter lookup_drafter(int64_t longest);

}  // namespace draftsmith::infer
