#include "infer/windows/draft_history.h"

#include <cmath>

namespace draftsmith::infer {

namespace {

constexpr double kMemory = 7.0 / 8;

// Brings a count to about 1.
float scaled(int64_t count) {
  return static_cast<float>(std::log1p(static_cast<double>(count)) / 4);
}

}  // namespace

DraftHistory::Context DraftHistory::context(int64_t draft_position) const {
  return {scaled(draft_position), scaled(emitted_ + draft_position), scaled(source_tokens_),
          static_cast<float>(kept_share_), scaled(kept_run_)};
}

void DraftHistory::observe(const WindowOutcome& outcome) {
  emitted_ = outcome.emitted;
  if (!outcome.judged) return;
  kept_share_ = 1 - (1 - kept_share_) * std::pow(kMemory, outcome.accepted);
  kept_run_ += outcome.accepted;
  if (outcome.accepted == outcome.drafted) return;
  kept_share_ *= kMemory;
  kept_run_ = 0;
}

}  // namespace draftsmith::infer
