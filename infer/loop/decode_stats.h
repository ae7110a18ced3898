// Counts and times of decoding, for one output line or summed over many, and as JSON (methods.md §3 has the
// definitions).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace draftsmith::infer {

// Decoder steps: all that a model's bytes and operations depend on, beside its shapes (infer/costs/decode_work.h).

// A step of one row.
struct RowStep {
  double share = 1;    // of the batch's step: 1 / rows that take part
  int64_t before = 0;  // tokens in the row's caches before it
  int64_t tokens = 1;  // tokens that it adds
  int64_t logits = 1;  // of these, tokens with logits
};

struct StepCounts {
  double passes = 0;   // steps of batches, for a row in equal shares: each reads the weights once
  int64_t steps = 0;   // steps of rows
  int64_t tokens = 0;  // tokens that went through the layers
  int64_t logits = 0;  // tokens that went through the head
  int64_t keys = 0;    // cached tokens that the steps read: those before a step and its own
  int64_t pairs = 0;   // pairs of a token and one that it sees: itself and all before it
  // Likewise in layers with a window, if it is set before steps are added; sums leave it as it is.
  int64_t window = 0;
  int64_t window_keys = 0;
  int64_t window_pairs = 0;
  bool operator==(const StepCounts&) const = default;

  void add(const RowStep& step) {
    passes += step.share;
    ++steps;
    tokens += step.tokens;
    logits += step.logits;
    keys += step.before + step.tokens;
    pairs += step.tokens * step.before + step.tokens * (step.tokens + 1) / 2;
    if (window == 0) return;
    window_keys += std::min(step.before, window - 1) + step.tokens;
    const int64_t growing = std::clamp<int64_t>(window - step.before, 0, step.tokens);  // these see all before them
    window_pairs += growing * step.before + growing * (growing + 1) / 2 + (step.tokens - growing) * window;
  }
  StepCounts& operator+=(const StepCounts& added) {
    passes += added.passes;
    steps += added.steps;
    tokens += added.tokens;
    logits += added.logits;
    keys += added.keys;
    pairs += added.pairs;
    window_keys += added.window_keys;
    window_pairs += added.window_pairs;
    return *this;
  }
};

enum class Phase { kEncode, kPrefill, kDraft, kVerify, kOther };

// Seconds of each phase. `greedy` and `sample` count the target's steps as `verify`.
struct PhaseSeconds {
  double encode = 0;
  double prefill = 0;
  double draft = 0;
  double verify = 0;
  double other = 0;
  bool operator==(const PhaseSeconds&) const = default;

  double total() const { return encode + prefill + draft + verify + other; }
  // Returns the seconds without encoder and prefill: the numerator of `speedup_decode`.
  double decode() const { return draft + verify + other; }
  double& operator[](Phase phase);
  PhaseSeconds& operator+=(const PhaseSeconds& added);
  // Returns each phase multiplied by `factor` (a row's share of its batch).
  PhaseSeconds scaled(double factor) const;
};

struct DecodeStats {
  int64_t emitted = 0;        // new tokens put out, EOS included
  int64_t target_runs = 0;    // target steps with this row; encoder runs and prompts do not count
  int64_t target_tokens = 0;  // tokens that the target was given in these steps
  int64_t draft_runs = 0;     // drafter steps with this row
  int64_t verifications = 0;  // target steps that judged a draft (also an empty one); 0 for greedy and sample
  int64_t drafted = 0;        // tokens drafted; tokens of a window behind an EOS do not count
  int64_t accepted = 0;       // drafted tokens kept
  int64_t unverified = 0;     // of these, tokens that BiLD put out at an output's end without a run of the target
  int64_t fallbacks = 0;      // BiLD: runs of the large model
  int64_t rollbacks = 0;      // BiLD: verifications that replaced a small model's token
  int64_t cut = 0;            // tokens behind the end, the target's after a verified draft too
  std::vector<int64_t> accepted_histogram;    // verifications by accepted length 0..G
  std::vector<int64_t> examined_by_position;  // verifications that examined draft position j (all before it accepted)
  std::vector<int64_t> accepted_by_position;  // examined verifications that accepted position j
  int64_t layer_runs = 0;  // decoder layers run, one for each token and layer, without prompts; 0: not counted
  std::vector<int64_t> exits_by_layer;  // CALM: new tokens by the layer where they left, 1..N at index 0..N-1
  int64_t early_predictions = 0;        // PPD: new tokens that were predicted early and that another token follows
  int64_t early_matches = 0;            // PPD: early predictions with the token among the candidates
  int64_t latency_units = 0;            // layers run one after the other (PPD's main process, early-exit); else 0
  int64_t compute_units = 0;            // PPD: layers run by all processes
  double overlap_sum = 0;               // sum over examined positions of sum_x min(p, q)
  int64_t overlap_count = 0;            // positions in overlap_sum; 0: not measured
  StepCounts target_steps;              // of early exits through the layers above the exit
  StepCounts draft_steps;               // of the drafter, or through the target's layers below its exit
  PhaseSeconds seconds;                 // the row's equal share of its batch's time

  // Counts one verification of `drafted_now` tokens that accepted the first `accepted_now`. `window`: the largest
  // window possible (0: unknown), which is the histogram's least length.
  void count_verification(int64_t drafted_now, int64_t accepted_now, int64_t window);
  DecodeStats& operator+=(const DecodeStats& added);
  bool operator==(const DecodeStats&) const = default;

  // --- ratios; NaN if nothing was counted ---
  double alpha() const;
  double acceptance_rate() const;  // without unverified tokens
  double tokens_per_target_run() const;
  double fallback_rate() const;
  double rollback_rate() const;
  double match_rate() const;          // PPD's p-hat
  double average_exit_layer() const;  // CALM
  // Returns P(token j accepted | token j-1 accepted), j = 1..G at index j-1.
  std::vector<double> acceptance_by_position() const;
};

// Returns the counts and seconds for `draftsmith generate --json` and the Python module. Counts that the method does
// not make are absent, and so is alpha unless `with_alpha`.
nlohmann::ordered_json stats_json(const DecodeStats& stats, bool with_alpha);

}  // namespace draftsmith::infer
