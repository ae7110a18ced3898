// Accepted lengths of outputs that were decoded before, and the two window rules around them: `fixed` with a record
// being taken, and `oracle`, which replays it.
//
// The oracle stops exactly before the first rejection. It can know where that is at temperature 0, where an output is a
// function of its prompt. In a first, untimed pass every window has max_draft tokens (fewer only at the length limit or
// an EOS), and the length accepted in each is written down: n_1, n_2, ... In the replay the i-th window has n_i tokens.
// By induction both passes reach the i-th window with the same committed tokens: if so, the replay drafts the first n_i
// of the tokens that the record's pass drafted there (a drafter reads what is committed and what it drafted), the
// target accepts all of them and adds the same token after them as before, whether that replaced the record's first
// rejection or followed a full window; so both commit n_i + 1 tokens, and block boundaries coincide. (Rounding may
// break this where two logits of the target are equal up to a step's error, see methods.md §3; the output stays the
// target's, and where the record ends the target writes alone.) No rule with the same max_draft makes fewer target runs
// with a drafter whose choices depend on the tokens alone: from each position the window reaches to the drafter's next
// mistake. And it drafts nothing in vain. So it is the upper bound of what adapting the window can win.
#pragma once

#include <map>
#include <vector>

#include "infer/windows/fixed.h"
#include "infer/windows/window_rule.h"

namespace draftsmith::infer {

class AcceptedLengths {
 public:
  using Key = std::vector<int64_t>;
  // What tells outputs apart: source, prompt and length limit.
  static Key key_of(const Row& row);

  // The lengths of that output, null when it was not recorded.
  const std::vector<int64_t>* find(const Key& key) const;
  void set(const Key& key, std::vector<int64_t> lengths) { lengths_[key] = std::move(lengths); }

 private:
  std::map<Key, std::vector<int64_t>> lengths_;
};

// A fixed window that records what is accepted.
class RecordingWindow : public FixedWindow {
 public:
  // The record must outlive the rule.
  RecordingWindow(int64_t window, AcceptedLengths& record) : FixedWindow(window), record_(record) {}
  void begin(std::span<const Row> rows) override;
  void observe(int64_t row, int64_t drafted, int64_t accepted) override;
  void select_rows(std::span<const int64_t> rows) override;

 private:
  AcceptedLengths& record_;
  std::vector<AcceptedLengths::Key> keys_;      // [B]
  std::vector<std::vector<int64_t>> accepted_;  // [B]
};

class OracleWindow : public WindowRule {
 public:
  // The record must outlive the rule.
  OracleWindow(int64_t max_draft, const AcceptedLengths& record) : max_draft_(max_draft), record_(record) {}
  WindowTraits traits() const override { return {.name = "oracle", .greedy_only = true, .replays = true}; }
  int64_t maximum() const override { return max_draft_; }
  // Throws std::logic_error for a row that was not recorded.
  void begin(std::span<const Row> rows) override;
  int64_t length(int64_t row) const override;
  at::Tensor go_on(const DraftStep&) override { return {}; }
  void observe(int64_t row, int64_t drafted, int64_t accepted) override;
  void select_rows(std::span<const int64_t> rows) override;

 private:
  struct Replay {
    const std::vector<int64_t>* lengths = nullptr;
    size_t next = 0;
  };
  int64_t max_draft_;
  const AcceptedLengths& record_;
  std::vector<Replay> rows_;  // [B]
};

}  // namespace draftsmith::infer
