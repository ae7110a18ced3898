// The window `oracle`, which stops exactly before the first rejection, and the recording pass that it replays.
//
// Rejections can be known at temperature 0, where an output is a function of its prompt. A first, untimed pass records
// the accepted length of each window: n_1, n_2, ... Its windows have max_draft tokens, or fewer at the length limit or
// an EOS. In the replay the i-th window has n_i tokens.
//
// By induction both passes reach the i-th window with the same committed tokens. A drafter reads only committed and
// drafted tokens, so the replay drafts the first n_i tokens of the recorded window. The target accepts all of them and
// adds the same token as before. Both passes commit n_i + 1 tokens, so the block boundaries coincide.
//
// Rounding may break this where two logits of the target are equal up to a step's error (methods.md §3). The output is
// the target's nevertheless; after the record's end the target writes alone.
//
// The oracle is the upper bound of adaptive windows: it drafts nothing in vain, and no rule with the same max_draft
// makes fewer target runs, because each window reaches to the drafter's next mistake.
#pragma once

#include <map>
#include <vector>

#include "infer/windows/fixed.h"
#include "infer/windows/window_rule.h"

namespace draftsmith::infer {

class AcceptedLengths {
 public:
  using Key = std::vector<int64_t>;
  // Returns the output's identity: source, prompt and length limit.
  static Key key_of(const Row& row);

  // Returns the accepted lengths of an output; null if it was not recorded.
  const std::vector<int64_t>* find(const Key& key) const;
  void set(const Key& key, std::vector<int64_t> lengths) { lengths_[key] = std::move(lengths); }

 private:
  std::map<Key, std::vector<int64_t>> lengths_;
};

// A fixed window that records accepted lengths.
class RecordingWindow : public FixedWindow {
 public:
  // The record must outlive the rule.
  RecordingWindow(int64_t window, AcceptedLengths& record) : FixedWindow(window), record_(record) {}
  void begin(std::span<const Row> rows) override;
  void observe(int64_t row, const WindowOutcome& outcome) override;
  void select_rows(std::span<const int64_t> rows) override;

 private:
  AcceptedLengths& record_;
  std::vector<AcceptedLengths::Key> keys_;      // [B]
  std::vector<std::vector<int64_t>> accepted_;  // [B]
};

class OracleWindow : public BoundedWindow {
 public:
  // The record must outlive the rule.
  OracleWindow(int64_t max_draft, const AcceptedLengths& record) : BoundedWindow(max_draft), record_(record) {}
  static WindowTraits kind() { return {.name = "oracle", .replays = true}; }
  WindowTraits traits() const override { return kind(); }
  // Throws std::logic_error for a row that was not recorded.
  void begin(std::span<const Row> rows) override;
  int64_t length(int64_t row) const override;
  void observe(int64_t row, const WindowOutcome& outcome) override;
  void select_rows(std::span<const int64_t> rows) override;

 private:
  struct Replay {
    const std::vector<int64_t>* lengths = nullptr;
    size_t next = 0;
  };
  const AcceptedLengths& record_;
  std::vector<Replay> rows_;  // [B]
};

}  // namespace draftsmith::infer
