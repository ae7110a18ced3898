// What the training tests share: a tiny T5, a corpus of a learnable toy task, options that train it in a second, and
// logs to compare.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "data/corpus/corpus.h"
#include "model/transformer/transformer_model.h"
#include "tests/support/pieces_tokenizer.h"
#include "train/trainer.h"

namespace draftsmith::train {

inline constexpr int64_t kTestVocabulary = 29;

model::TransformerConfig tiny_config();

// Writes a corpus whose targets are the sources reversed, of random lengths 1..8, EOS (1) at the end of both.
void write_reversal_corpus(const std::filesystem::path& file, int64_t examples, uint64_t seed);

// Small batches, dropout, two micro-batches a step: everything that exact resume has to get right.
TrainOptions tiny_options();
// Returns these for so many steps or epochs in which a model learns something.
TrainOptions learning(const std::string& length);

// One run in `directory` on DIRECTORY/../train.h5, which must exist, with a model of seed 5.
TrainResult train_tiny(const std::filesystem::path& directory, const TrainOptions& options);
// The same with a validation corpus too.
TrainResult train_tiny_validated(const std::filesystem::path& directory, const TrainOptions& options);

// Expects that two runs ended with the same bits and, but for times, with the same log.
void expect_same_run(const std::filesystem::path& one, const std::filesystem::path& other);
// Returns the lines of the run's metrics.jsonl without what was timed.
std::vector<nlohmann::json> untimed_log(const std::filesystem::path& run);

// A model whose outputs are NaN for batches with an example below `poisoned`.
class PoisonedTrainable : public PlainTrainable {
 public:
  PoisonedTrainable(model::TransformerModel& model, int64_t poisoned) : PlainTrainable(model), poisoned_(poisoned) {}
  TrainableOutput forward(const Batch& batch, const model::DropoutContext& dropout) override;

 private:
  int64_t poisoned_;
};

// Ids are words of one letter.
class LetterWords : public infer::testing::Letters {
 public:
  using infer::testing::Letters::Letters;
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text += infer::testing::Letters::decode(std::span(&id, 1)) + " ";
    return text;
  }
};

// Returns the model with the lower 15 ids of its vocabulary, of which 2 is the unknown token.
std::unique_ptr<model::TransformerModel> pruned(const model::TransformerModel& model);
inline constexpr int64_t kPrunedRows = 15;

// Names of parameters or gradients that differ between two sets by more than `tolerance` (relative to the largest).
std::string differences(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b,
                        double tolerance);

// (f(x + h) - f(x - h)) / 2h for each number of x, fp64, h = 1e-5.
at::Tensor numeric_gradient(at::Tensor x, const std::function<double()>& f);

}  // namespace draftsmith::train
