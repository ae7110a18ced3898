// Settings that every decoding method applies at every position.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "infer/acceptance/acceptance_rule.h"
#include "infer/drafters/drafter.h"
#include "infer/loop/processors.h"
#include "infer/sampling/row_kernels.h"
#include "infer/windows/window_rule.h"

namespace draftsmith::infer {

// The three parts of a method that drafts.

struct DraftParts {
  std::unique_ptr<Drafter> drafter;
  std::unique_ptr<WindowRule> window;
  std::unique_ptr<AcceptanceRule> acceptance;
};

struct DecodeSettings {
  Warping warping;
  LogitsProcessors processors;
  std::vector<int64_t> eos;                           // any of these ids ends a row
  bool measure_alpha = false;                         // also computes the overlap of drafter and target
  int64_t ids = std::numeric_limits<int64_t>::max();  // ids from this one on only pad the logits: never put out

  // Rules out padding ids and applies the processors. Changes the logits in place: [B,P,V], or [B,V] for one position.
  void process(const at::Tensor& logits, const ProcessorContext& context) const;
};

}  // namespace draftsmith::infer
