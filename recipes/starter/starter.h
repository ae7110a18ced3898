// A recipe that gives a model a drafter: looks at the model and the text, measures here the steps of the model and of
// candidates cut out of it, and their training, chooses one by theory and writes the recipe. `draftsmith new` is its
// command line; stages of the recipe that no other has are in recipes/stages/starter_stages.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "infer/costs/step_costs.h"
#include "infer/load_models.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::recipes {

struct StarterOptions {
  std::filesystem::path target;             // model directory
  std::vector<std::filesystem::path> text;  // empty: the target writes its prompts itself
  std::string task;                         // empty: what the target is for
  double hours = 1;
  std::optional<int64_t> layers;  // decoder layers of the drafter; absent: the best expected speedup's
  bool prune_vocabulary = false;  // candidates with a part of the vocabulary may be chosen, too
  std::string dtype = "fp32";     // of decoding
  std::filesystem::path out = "recipe.toml";
  std::string format = "hf";  // of the export
};

// What prompts are to the target.
enum class PromptForm {
  kSources,     // an encoder's sources, or whole prompts of a model without a chat template
  kChat,        // a user's messages
  kBeginnings,  // first tokens of lines of text
};

// The target, and what follows from it and the text.
struct Target {
  infer::LoadedModel loaded;
  model::TransformerConfig config;
  PromptForm form = PromptForm::kSources;
  std::string task;
  int64_t max_new_tokens = 128;
  int64_t prompt_tokens = 256;  // longest prompt
  int64_t lines = 0;            // different lines of the text; 0: no text
  bool writes_prompts() const { return lines == 0; }
};

// Looks at the target and the text, and refuses what could only fail later. Errors: a UserError for options out of
// range, an `out` that exists, and text that is missing, too little or in no form that the target reads; those of
// infer::load_model_directory() for a target whose vocabulary and tokenizer disagree.
Target look_at(const StarterOptions& options, at::Device device);
// Returns family, sizes, tokenizer and template as lines of text.
std::string describe(const Target& target);

// A drafter cut out of the target, as it was measured.
struct Candidate {
  std::string encoder_layers;  // that stay, as PruneOptions has them
  std::string decoder_layers;
  int64_t layers = 0;                  // of the decoder
  int64_t vocabulary = 0;              // ids that stay; 0: all
  int64_t numbers = 0;                 // parameters
  infer::StepCosts costs;              // beside the target
  double example_seconds = 0;          // of training on a prompt and its answer, once
  double alpha = 0;                    // assumed acceptance rate
  double speedup(double alpha) const;  // expected, with the best window
  int64_t window(double alpha) const;
};

// Times of the target, seconds.
struct TargetTimes {
  double step = 0;        // of one token
  double batch_step = 0;  // of a token in each of kBatch rows
};
inline constexpr int64_t kBatch = 64;  // rows of teacher outputs

struct Measured {
  TargetTimes target;
  std::vector<Candidate> candidates;
};

// Measures the target and candidates of 1, 2, 4 and a quarter of its decoder layers, with half of its encoder layers,
// and with a large vocabulary also those with 8,192 ids. Errors: UserError for a target of one layer.
Measured measure_candidates(const Target& target, const StarterOptions& options, at::Device device);

// A choice, and how long its stages take.
struct StarterPlan {
  const Candidate* chosen = nullptr;
  int64_t prompts = 0;   // to train on
  int64_t held_out = 0;  // to measure on
  double prompts_seconds = 0;
  double answers_seconds = 0;
  double training_seconds = 0;
  double evaluation_seconds = 0;
  double timing_minutes = 0;  // part of it, at most
};
inline constexpr int64_t kEpochs = 4;  // of training, as in recipes/quickstart.toml's alignment

// Chooses the candidate with the greatest expected speedup whose training fits the hours; `measured` must outlive the
// result. Errors: UserError if the hours are too few, with those that are needed, or the disk is too small.
StarterPlan make_plan(const Target& target, const Measured& measured, const StarterOptions& options);

// Rates and batches by family and width, from runs of this project.
struct TrainingDefaults {
  bool scaled_attention;  // false: T5
  int64_t widest;         // width of models that the row is for
  double lr;
  int64_t token_budget;
  const char* source;
};
const TrainingDefaults& training_defaults(const model::TransformerConfig& config);

// Returns the recipe's text.
std::string recipe_text(const Target& target, const StarterPlan& plan, const StarterOptions& options);

}  // namespace draftsmith::recipes
