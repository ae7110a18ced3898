// A model whose outputs are NaN for some examples.
#pragma once

#include <algorithm>
#include <limits>

#include "tests/train/fixtures.h"

namespace draftsmith::train {

class PoisonedTrainable : public PlainTrainable {
 public:
  // Batches with an example below `poisoned` give NaN.
  PoisonedTrainable(model::TransformerModel& model, int64_t poisoned) : PlainTrainable(model), poisoned_(poisoned) {}

  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override {
    TrainableOutput output = PlainTrainable::forward(batch, dropout);
    if (std::any_of(batch.examples.begin(), batch.examples.end(), [&](int64_t i) { return i < poisoned_; })) {
      at::Tensor& hidden = output.predictions.front().hidden;
      hidden = hidden * std::numeric_limits<double>::quiet_NaN();
    }
    return output;
  }

 private:
  int64_t poisoned_;
};

}  // namespace draftsmith::train
