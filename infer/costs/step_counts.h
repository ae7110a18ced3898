// Counts of a model's decoder steps: all that their bytes and operations depend on, beside the model's shapes
// (infer/costs/decode_work.h).
#pragma once

#include <cstdint>

namespace draftsmith::infer {

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

  void add(const RowStep& step) {
    passes += step.share;
    ++steps;
    tokens += step.tokens;
    logits += step.logits;
    keys += step.before + step.tokens;
    pairs += step.tokens * step.before + step.tokens * (step.tokens + 1) / 2;
  }
  StepCounts& operator+=(const StepCounts& added) {
    passes += added.passes;
    steps += added.steps;
    tokens += added.tokens;
    logits += added.logits;
    keys += added.keys;
    pairs += added.pairs;
    return *this;
  }
};

}  // namespace draftsmith::infer
