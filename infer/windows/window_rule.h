// A window rule decides when drafting stops and the target takes over. It may remember the history of each row.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/aten.h"
#include "infer/loop/rows.h"

namespace draftsmith::infer {

// When a rule decides. No rule may drop a token after it was sampled: that would bias the output (methods.md §1).
enum class Decides {
  kUpFront,      // from counts alone: nothing is read while drafting
  kBeforeToken,  // from the drafter's distribution, before a token is taken from it
  kAfterToken    // from the token just taken, which stays in the draft
};

struct WindowTraits {
  std::string name;
  Decides decides = Decides::kUpFront;
  bool constant_length = false;  // every window has the same number of tokens, whatever is drafted
  bool replays = false;          // repeats an earlier greedy pass, window by window
  bool asks_router = false;      // asks a router, which is trained for a drafter that is a model
  bool carries = false;          // remembers batches: a batch's first windows depend on the batch before it
};

// One drafting step of all rows, on the device.
struct DraftStep {
  at::Tensor logits;                     // [B,V] the drafter's, processed, not warped
  at::Tensor tokens;                     // int64 [B] taken from them; undefined for kBeforeToken
  std::span<const int64_t> active = {};  // [B] 0: the row's answer is not read; empty: all answers are read

  bool asks(int64_t row) const { return active.empty() || active[static_cast<size_t>(row)] != 0; }
};

// The end of a row's window.
struct WindowOutcome {
  int64_t drafted = 0;
  int64_t accepted = 0;   // drafted tokens that are kept
  bool judged = true;     // false: the draft was kept without a verdict of the target
  bool cut = false;       // the last token kept ended the text, so the target's next token was left out
  bool at_limit = false;  // the text has reached its length limit
};

class WindowRule {
 public:
  virtual ~WindowRule() = default;
  virtual WindowTraits traits() const = 0;
  // Returns the largest window possible; 0: unbounded.
  virtual int64_t maximum() const = 0;
  // Returns the most tokens of the row's coming window.
  virtual int64_t length(int64_t row) const = 0;
  // Returns whether each row goes on drafting (kBeforeToken: takes a token), bool [B]. Rules that decide up front are
  // never asked. Rows that the step does not ask about may have any answer.
  virtual at::Tensor go_on(const DraftStep& /*step*/) { return {}; }

  // --- for rules that remember rows ---
  // Begins a batch.
  virtual void begin(std::span<const Row> /*rows*/) {}
  // Called after each of the row's windows.
  virtual void observe(int64_t /*row*/, const WindowOutcome& /*outcome*/) {}
  // Keeps only the given rows, in the given order.
  virtual void select_rows(std::span<const int64_t> /*rows*/) {}

  // --- for rules that remember batches ---
  // Returns the tokens that the next batch's first windows will have; nullopt: the rule remembers no batch.
  virtual std::optional<int64_t> carried() const { return std::nullopt; }
  // Sets the tokens of the next batch's first windows; nullopt forgets earlier batches.
  virtual void carry(std::optional<int64_t> /*window*/) {}
};

}  // namespace draftsmith::infer
