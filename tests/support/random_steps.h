// Cached steps of random lengths against the logits of whole sequences.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "model/transformer/transformer_model.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {

// Feeds targets in steps of 0..8 tokens a row, each row its own number, with wrong drafts and rollbacks between them.
class RandomSteps {
 public:
  // `source` is undefined for decoder-only models; `logits` are those of the whole target. [B,T,V]
  RandomSteps(TransformerModel& model, const TokenBatch& source, TokenBatch target, at::Tensor logits, unsigned seed)
      : model_(model),
        target_(std::move(target)),
        logits_(std::move(logits)),
        rows_(target_.tokens.size(0)),
        random_(seed) {
    const int64_t capacity = target_.tokens.size(1) + 8;
    state_ =
        model_.config().encoder_decoder ? model_.begin(model_.encode(source), capacity) : model_.begin(rows_, capacity);
  }

  // Returns the largest difference, relative to the largest logit of its row's step.
  double worst_difference() {
    double worst = 0;
    for (int round = 0; !done() && round < 2000; ++round) {
      worst = std::max(worst, step());
      if (round % 3 == 0) draft_wrongly();
      if (round % 3 == 1) roll_back();
    }
    EXPECT_TRUE(done()) << "the steps never reached the end";
    return worst;
  }

 private:
  int64_t remaining(int64_t row) const { return target_.lengths[static_cast<size_t>(row)] - state_->length(row); }

  bool done() const {
    for (int64_t row = 0; row < rows_; ++row) {
      if (remaining(row) > 0) return false;
    }
    return true;
  }

  int64_t draw(int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random_); }

  double step() {
    const int64_t tokens = 1 + draw(7);
    StepInput input{.tokens = at::full({rows_, tokens}, 3, at::kLong)};
    std::vector<int64_t> before;
    for (int64_t row = 0; row < rows_; ++row) {
      before.push_back(state_->length(row));
      const int64_t count = std::min(remaining(row), draw(tokens));
      input.new_tokens.push_back(count);
      input.tokens[row].narrow(0, 0, count).copy_(target_.tokens[row].narrow(0, before.back(), count));
    }
    const at::Tensor found = model_.step(input, *state_).logits;  // [B,L,V]
    double worst = 0;
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t count = input.new_tokens[static_cast<size_t>(row)];
      if (count == 0) continue;
      const at::Tensor wanted = logits_[row].narrow(0, before[static_cast<size_t>(row)], count);
      worst = std::max(worst, difference(found[row].narrow(0, 0, count), wanted) / largest(wanted));
    }
    return worst;
  }

  // Steps tokens that are no part of the target, and takes them back.
  void draft_wrongly() {
    std::vector<int64_t> lengths;
    StepInput input;
    for (int64_t row = 0; row < rows_; ++row) {
      lengths.push_back(state_->length(row));
      input.new_tokens.push_back(std::min<int64_t>(remaining(row), 3));
    }
    input.tokens = at::full({rows_, 3}, 1, at::kLong);
    input.logits = Logits::kNone;
    model_.step(input, *state_);
    state_->rollback(lengths);
  }

  void roll_back() {
    std::vector<int64_t> lengths;
    for (int64_t row = 0; row < rows_; ++row) lengths.push_back(std::max<int64_t>(0, state_->length(row) - draw(6)));
    state_->rollback(lengths);
  }

  TransformerModel& model_;
  TokenBatch target_;
  at::Tensor logits_;
  int64_t rows_;
  std::mt19937 random_;
  std::unique_ptr<DecodeState> state_;
};

}  // namespace draftsmith::model
