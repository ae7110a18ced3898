// A window rule says when to stop drafting and hand over to the target. Rules keep what they remember of each row.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/aten.h"
#include "infer/loop/rows.h"

namespace draftsmith::infer {

// When a rule decides. Lossless sampling needs any of the first three: a sampled token that is dropped unverified
// biases the output (methods.md §1).
enum class Decides {
  kUpFront,      // from counts alone: nothing is read while drafting
  kBeforeToken,  // from the distribution, before a token is taken from it
  kAfterKept,    // from the token just taken, which stays in the draft
  kAfterDropped  // from the token just taken, which leaves the draft
};

struct WindowTraits {
  std::string name;
  Decides decides = Decides::kUpFront;
  bool needs_confidence = false;  // reads the drafter's probabilities as certainty
  bool greedy_only = false;       // makes sense at temperature 0 only
  bool replays = false;           // repeats an earlier pass, window by window as they were judged there
};

// One drafting step of all rows, on the device.
struct DraftStep {
  at::Tensor logits;                     // [B,V] the drafter's, processed, not warped
  at::Tensor tokens;                     // int64 [B] taken from them; undefined for rules that decide before
  std::span<const int64_t> active = {};  // [B] 0: nobody asks whether the row goes on; empty: all are asked

  bool asks(int64_t row) const { return active.empty() || active[static_cast<size_t>(row)] != 0; }
};

class WindowRule {
 public:
  virtual ~WindowRule() = default;
  virtual WindowTraits traits() const = 0;
  // Largest window possible; 0: unbounded.
  virtual int64_t maximum() const = 0;
  // A new batch: nothing is decoded yet.
  virtual void begin(std::span<const Row> rows) = 0;
  // Most tokens of the row's coming window.
  virtual int64_t length(int64_t row) const = 0;
  // Rules that decide while drafting: bool [B], whether each row goes on (before: takes a token). Rows that are not
  // asked may have any answer.
  virtual at::Tensor go_on(const DraftStep& step) = 0;
  // The row's window of `drafted` tokens was judged.
  virtual void observe(int64_t row, int64_t drafted, int64_t accepted) = 0;
  virtual void select_rows(std::span<const int64_t> rows) = 0;
};

}  // namespace draftsmith::infer
