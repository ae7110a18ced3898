// Training steps on made-up examples of one length, for benches.
#pragma once

#include <memory>
#include <optional>

#include "base/files.h"
#include "model/transformer/transformer_model.h"
#include "train/objectives/objective.h"
#include "train/optimizers/optimizer.h"
#include "train/training_step.h"

namespace draftsmith::bench {

struct TrainingSize {
  int64_t rows = 8;
  int64_t source = 64;
  int64_t target = 64;
};

struct TrainingRunOptions {
  TrainingSize size;
  double dropout = 0;
  bool autocast = false;   // matrix products in bf16
  bool recompute = false;  // activation checkpointing
  int64_t batches = 1;     // different batches, which steps take in turns
  int64_t warmup = 0;      // steps in which the learning rate grows to its height; 0: none
};

// Cross entropy, AdamW at a rate of 1e-4, clipping at 1, one micro-batch a step.
class TrainingRun {
 public:
  // The model must outlive the run, and its parameters must take gradients.
  TrainingRun(model::TransformerModel& model, const TrainingRunOptions& options);

  // Makes one step. Returns its mean loss. Throws RunError if it is not finite.
  double step();
  // Makes one step. Returns the seconds until the device has done it.
  double timed_step();
  // Returns the examples, batch after batch.
  const data::Corpus& corpus() const { return *corpus_; }

 private:
  TrainingRunOptions options_;
  at::Device device_;
  TemporaryDirectory folder_;
  std::optional<data::Corpus> corpus_;
  train::PlainTrainable trainable_;
  std::unique_ptr<train::Objective> objective_;
  std::unique_ptr<train::Optimizer> optimizer_;
  uint64_t steps_ = 0;
};

}  // namespace draftsmith::bench
