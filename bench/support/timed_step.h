// One cached decoder step of a model, timed again and again at the same place.
#pragma once

#include <memory>

#include "model/transformer/transformer_model.h"

namespace draftsmith::bench {

// Input of a bench: rows of the same length.
struct DecodingSize {
  int64_t rows = 1;
  int64_t source = 32;  // tokens of each row's source, or of its prompt
  int64_t most_tokens = 16;
};

// A model after the source (encoder-decoder) and as many tokens of output, or after the prompt (decoder-only).
class TimedStep {
 public:
  // The model must outlive the step.
  TimedStep(model::TransformerModel& model, const DecodingSize& size);

  // Returns the seconds of a step of L tokens a row, until its most likely next tokens are on the host; without logits
  // until the device has done it. Goes back afterwards.
  double run(int64_t tokens, model::Logits logits = model::Logits::kAll);

  // Returns the median seconds of `rounds` steps, after two that warm up.
  double median_of(int64_t rounds, int64_t tokens);

 private:
  model::StepInput input_of(int64_t tokens, model::Logits logits) const;

  model::TransformerModel& model_;
  DecodingSize size_;
  std::unique_ptr<model::DecodeState> state_;
};

}  // namespace draftsmith::bench
