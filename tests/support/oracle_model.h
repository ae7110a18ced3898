// A language model that is a function from (source, prefix) to the distribution of the next token: decoding rules are
// tested against exact probabilities, without weights.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "model/transformer/language_model.h"

namespace draftsmith::infer {

// Probabilities [V] (summing to 1) of the next token. `prefix`: the tokens put out so far, without the start token;
// decoder-only: prompt and tokens.
using OracleFunction =
    std::function<std::vector<double>(std::span<const int64_t> source, std::span<const int64_t> prefix)>;

class OracleModel : public model::LanguageModel {
 public:
  // info.dtype is that of the logits, log p with -inf for 0. Logits nobody should read are NaN.
  OracleModel(model::ModelInfo info, OracleFunction function);

  const model::ModelInfo& info() const override { return info_; }
  // The hidden states are the source's ids. [B,S,1]
  model::EncoderStates encode(const model::TokenBatch& source) override;
  std::unique_ptr<model::DecodeState> begin(const model::EncoderStates& source, int64_t capacity,
                                            int64_t samples = 1) override;
  std::unique_ptr<model::DecodeState> begin(int64_t rows, int64_t capacity) override;
  // The hidden states of any layer are the tokens' ids. [B,L,1]
  model::StepOutput step(const model::StepInput& input, model::DecodeState& state) override;

  // Steps and encoder runs so far.
  int64_t steps() const { return steps_; }
  int64_t encodes() const { return encodes_; }

 private:
  struct State;
  void write_logits(const State& state, size_t row, int64_t length, double* out) const;

  model::ModelInfo info_;
  OracleFunction function_;
  int64_t steps_ = 0;
  int64_t encodes_ = 0;
};

}  // namespace draftsmith::infer
