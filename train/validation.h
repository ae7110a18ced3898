// Validation of the model in training: cross entropy, token accuracy and overlap with a teacher on the tokens of a
// validation corpus; on a sample of it, greedy BLEU and a speculative decode. Each exit, which predicts early in the
// decoder, is measured separately.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/corpus/corpus.h"
#include "data/tokenizers/tokenizer.h"
#include "train/options.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {

// Measures of the trained model as a drafter: of a speculative decode with it, and of its predictions on the target's
// own outputs, which that decode gives since it is lossless (Leviathan et al. 2023, definition 3.1, section 3.3). p and
// q are at draft_temperature; at 0, sum_x min(p, q) is 1 where both find the same token most likely, else 0.
struct DraftMeasures {
  double alpha = 0;                  // mean of sum_x min(p, q) over the positions that verification examined
  double tokens_per_target_run = 0;  // accepted tokens of a round and the target's own
  double alpha_forced = 0;           // mean of sum_x min(p, q) over all positions of the target's own outputs
  double agreement = 0;              // share of these positions where both find the same token most likely
};

struct ValidationResult {
  double loss = 0;      // cross entropy per label that the model has an id for, nats, without label smoothing
  double accuracy = 0;  // share of labels that are the model's arg max, teacher-forced
  int64_t labels = 0;
  std::optional<double> bleu;     // 0..100
  std::optional<double> overlap;  // mean over labels of sum over v of min(teacher's p, model's q)
  std::optional<DraftMeasures> drafts;
  // The sum of w_i L_i, the loss above included, if exits are trained beside the last layer.
  std::optional<double> weighted_loss;
  // Measures of each exit as if it were the model. With TrainableModel::measures_all() the measures above are the means
  // of these.
  struct Exit {
    int64_t layer = 0;
    double loss = 0;
    double accuracy = 0;
    std::optional<double> overlap;
  };
  std::vector<Exit> exits;
  double decoding_seconds = 0;  // of BLEU and the speculative decode
};

// Inputs of a validation. Pointers must outlive it.
struct ValidationInputs {
  const data::Corpus* corpus = nullptr;        // none: no validation
  const data::Tokenizer* tokenizer = nullptr;  // for BLEU
  model::TransformerModel* teacher = nullptr;  // for overlap and speculative decodes
};

// Checks the inputs. Errors (UserError): BLEU without a tokenizer; BLEU or a speculative decode for models that cannot
// decode; overlap or a speculative decode without a teacher, or the latter without prompts; examples without a
// single label.
void check_validation(const TrainableModel& trainable, const ValidationInputs& inputs,
                      const ValidationOptions& options);

// Validates, as long work that may end at its points (base/signals.h). Errors: Interrupted; RunError when a text cannot
// be decoded.
ValidationResult validate(TrainableModel& trainable, const ValidationInputs& inputs, const ValidationOptions& options);

// Returns the value of a measure by its name in ValidationOptions; "loss" is the weighted one, if there is one.
double value_of(const ValidationResult& result, const std::string& measure);

}  // namespace draftsmith::train
