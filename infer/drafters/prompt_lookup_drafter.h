// The drafter `lookup`, prompt look-up: copies what followed the last earlier occurrence of the longest suffix of the
// text so far, of up to `longest` tokens, in the source or in what was generated (methods.md §1). Where even the last
// token is new it proposes nothing. Its q is one-hot.
#pragma once

#include "infer/drafters/drafter.h"
#include "infer/drafters/suffix_index.h"

namespace draftsmith::infer {

class PromptLookupDrafter : public Drafter {
 public:
  // `longest` >= 1: n of the longest n-gram that is looked for.
  explicit PromptLookupDrafter(int64_t longest) : longest_(longest) {}

  DrafterTraits traits() const override {
    return {.name = "lookup", .distribution = true, .confidence = false, .logits = false, .on_host = true};
  }
  void encode(const DraftBegin&) override {}
  void prefill(const DraftBegin& begin) override;
  std::optional<std::vector<int64_t>> next_tokens(const DraftRequest& request) override;
  // Throws std::logic_error: there are none.
  at::Tensor next_logits(const DraftRequest& request) override;
  void observe(const DraftObservation& observation) override;
  void select_rows(std::span<const int64_t> rows) override;

 private:
  // A row's source and committed tokens. Drafted tokens never enter the index, so nothing is ever taken back.
  struct Text {
    SuffixIndex index;
    int64_t committed = 0;  // tokens of the row in the index, or before it (a start token)
    int64_t match = -1;     // where this window began to copy
    void add(const Row& row);
  };
  static int64_t copied(const Text& text, std::span<const int64_t> drafted);

  int64_t longest_;
  std::vector<Text> texts_;  // [B]
};

}  // namespace draftsmith::infer
