// Validation of the model in training: cross entropy and token accuracy on a validation corpus, greedy BLEU on a sample
// of it, and alpha against a teacher. Each exit, which predicts early in the decoder, is measured separately.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/corpus/corpus.h"
#include "data/tokenizers/tokenizer.h"
#include "train/options.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

struct ValidationResult {
  double loss = 0;      // cross entropy per label that the model has an id for, nats, without label smoothing
  double accuracy = 0;  // share of labels that are the model's arg max, teacher-forced
  int64_t labels = 0;
  std::optional<double> bleu;   // 0..100
  std::optional<double> alpha;  // mean over labels of sum over v of min(teacher's p, model's q)
  // The sum of w_i L_i, the loss above included, if exits are trained beside the last layer.
  std::optional<double> weighted_loss;
  // Measures of each exit as if it were the model. With TrainableModel::measures_all() the measures above are the means
  // of these.
  struct Exit {
    int64_t layer = 0;
    double loss = 0;
    double accuracy = 0;
    std::optional<double> alpha;
  };
  std::vector<Exit> exits;
};

// Inputs of a validation. Pointers must outlive it.
struct ValidationInputs {
  const data::Corpus* corpus = nullptr;
  const data::Tokenizer* tokenizer = nullptr;
  std::vector<std::string> references = {};  // one an example; empty: the decoded targets
  model::TransformerModel* teacher = nullptr;
};

// Checks the inputs. Errors (UserError): the measure needs BLEU without a tokenizer or for models that cannot decode,
// or alpha without a teacher; references of another count; examples without a single label.
void check_validation(const TrainableModel& trainable, const ValidationInputs& inputs,
                      const ValidationOptions& options);

// Validates. Errors: Interrupted when SIGINT or SIGTERM came (base/signals.h), between two batches.
ValidationResult validate(TrainableModel& trainable, const ValidationInputs& inputs, const ValidationOptions& options);

// Returns the value of a measure: "loss" (the weighted one, if there is one), "accuracy", "bleu" or "alpha".
double value_of(const ValidationResult& result, const std::string& measure);

}  // namespace draftsmith::train
