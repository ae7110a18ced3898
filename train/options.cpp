#include "train/options.h"

namespace draftsmith::train {
namespace {

bool measures_drafts(const std::string& measure) {
  return measure == "agreement" || measure == "alpha_forced" || measure == "alpha" ||
         measure == "tokens_per_target_run";
}

// A run's own length cannot be a share of the run.
void check_length(const std::string& text, const std::string& where, Problems& problems) {
  check_period(text, where, false, problems);
  if (text.find('%') != std::string::npos) {
    problems.add({.where = where,
                  .what = "the length of a run cannot be a share of itself",
                  .expected = "steps, epochs or labels",
                  .found = text});
  }
}

}  // namespace

Fields<ValidationOptions> ValidationOptions::fields() {
  return Fields<ValidationOptions>("validation during training")
      .add("every", &ValidationOptions::every,
           "How often the model is validated, beside the end of the run: \"500 steps\", \"1 epochs\", \"10 %\".")
      .add("max_examples", &ValidationOptions::max_examples, Range{0}, Unit{"examples"},
           "The first so many examples count; 0: all.")
      .add("bleu_examples", &ValidationOptions::bleu_examples, Range{0}, Unit{"examples"},
           "Examples whose greedy translation is compared with the target by BLEU (13a); 0: none.")
      .add("draft_examples", &ValidationOptions::draft_examples, Range{0}, Unit{"examples"},
           "Examples that are decoded speculatively, with the trained model as the drafter and the teacher as the "
           "target (of a Tandem its primary, of a shared encoder its owner): gives alpha, tokens_per_target_run, "
           "alpha_forced and agreement. 0: none. The log shows the seconds that it takes.")
      .add("draft_window", &ValidationOptions::draft_window, Range{1, 64}, Unit{"tokens"},
           "Draft window of that decode.")
      .add("draft_temperature", &ValidationOptions::draft_temperature, Range{0},
           "Temperature of that decode and of its measures; 0: greedy.")
      .add("max_new_tokens", &ValidationOptions::max_new_tokens, Range{1}, Unit{"tokens"},
           "Longest output for BLEU and the speculative decode.")
      .add("token_budget", &ValidationOptions::token_budget, Range{1}, Unit{"tokens"}, NoResult{},
           "Most tokens of a validation batch, padding counted.")
      .add(
          "measure", &ValidationOptions::measure,
          Choices{"loss", "accuracy", "bleu", "overlap", "agreement", "alpha_forced", "alpha", "tokens_per_target_run"},
          "What the best model is best at. On the corpus's tokens: loss (cross entropy per label; where exits are "
          "trained too, the weighted sum of theirs and the last layer's), accuracy, overlap (mean of sum_x min(p, q) "
          "with the teacher's p). BLEU of bleu_examples. Of draft_examples: agreement (of both models' most likely "
          "tokens) and alpha_forced (mean of sum_x min(p, q)) on the target's own outputs, alpha (the same at the "
          "positions that verification examined), tokens_per_target_run.")
      .add("patience", &ValidationOptions::patience, Range{0}, Unit{"validations"},
           "Stop after so many validations without a new best; 0: never.")
      .check([](const ValidationOptions& options, const std::string& where, Problems& problems) {
        check_period(options.every, where + ".every", false, problems);
        if (options.measure == "bleu" && options.bleu_examples == 0) {
          problems.add({.where = where + ".measure",
                        .what = "the best model is to be chosen by BLEU, which is off",
                        .expected = "bleu_examples above 0",
                        .found = "bleu_examples = 0"});
        }
        if ((options.measure == "alpha" || options.measure == "tokens_per_target_run") && options.max_new_tokens == 1) {
          problems.add({.where = where + ".max_new_tokens",
                        .what = "leaves a speculative decode nothing to draft, by which the best model is chosen",
                        .expected = "at least 2",
                        .found = "1"});
        }
        if (measures_drafts(options.measure) && options.draft_examples == 0) {
          problems.add(
              {.where = where + ".measure",
               .what = "the best model is to be chosen by a speculative decode, which is off",
               .expected = "draft_examples above 0",
               .found = "draft_examples = 0",
               .hint = options.measure == "alpha" ? "the measure on the corpus's tokens is called \"overlap\"" : ""});
        }
      });
}

Fields<TrainOptions> TrainOptions::fields() {
  return Fields<TrainOptions>("training")
      .add("length", &TrainOptions::length, "Length of the run: \"2000 steps\", \"3 epochs\" or \"1e6 labels\".")
      .add("objective", &TrainOptions::objective, "What is minimised.")
      .add("optimizer", &TrainOptions::optimizer, "How parameters are updated.")
      .add("schedule", &TrainOptions::schedule, "The learning rate over the run.")
      .add("batches", &TrainOptions::batches, "The micro-batches.")
      .add("validation", &TrainOptions::validation, "Measures taken on the validation corpus during the run.")
      .add("accumulate", &TrainOptions::accumulate, Range{1}, Unit{"micro-batches"},
           "Micro-batches of one step; their gradients add up to the gradient of one large batch.")
      .add("clip_norm", &TrainOptions::clip_norm, Range{0},
           "Gradients with a larger global norm are scaled down to it; 0: off. Adafactor clips its updates itself "
           "(adafactor.clip_threshold): papers that fine-tune T5 with it use 0 here.")
      .add("dropout", &TrainOptions::dropout, Range{0, 0.99}, "Dropout probability; absent: the model's own.")
      .add("seed", &TrainOptions::seed, "Seed of dropout.")
      .add("precision", &TrainOptions::precision, Choices{"fp32", "bf16", "auto"},
           "bf16: matrix products in bf16 (autocast) over fp32 weights, gradients and optimizer state. auto: bf16 on "
           "CPUs that have instructions for it (AMX, AVX-512 BF16), where it is faster, else fp32.")
      .add("keep", &TrainOptions::keep, Choices{"best", "last"},
           "Which model is the result: the best by validation.measure, or the last. Without validation: the last.")
      .add("checkpoint_every", &TrainOptions::checkpoint_every, NoResult{},
           "How often a training checkpoint is written, beside interruptions and the end: \"5 minutes\", \"1000 "
           "steps\"; empty: only then.")
      .add("log_every", &TrainOptions::log_every, Range{1}, Unit{"steps"}, NoResult{},
           "How often metrics.jsonl gets a line.")
      .check([](const TrainOptions& options, const std::string& where, Problems& problems) {
        const std::string prefix = where.empty() ? "" : where + ".";
        check_length(options.length, prefix + "length", problems);
        Problems own;
        check_period(options.checkpoint_every, prefix + "checkpoint_every", true, own);
        if (own.empty() || parse_minutes(options.checkpoint_every)) return;
        problems.add({.where = prefix + "checkpoint_every",
                      .what = "not a length of time or training",
                      .expected = "\"5 minutes\", \"1000 steps\", \"1 epochs\", \"1e6 labels\", \"10 %\" or nothing",
                      .found = "\"" + options.checkpoint_every + "\""});
      });
}

}  // namespace draftsmith::train
