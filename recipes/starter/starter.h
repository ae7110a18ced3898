// A recipe that gives a model a drafter, for `draftsmith new`: looks at the model and the text, measures here steps and
// training of candidates cut out of it, chooses one by theory, and fills in recipe.template. Stages that no other
// recipe has are in recipes/stages/starter_stages.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
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
  int64_t layers = 0;          // decoder layers of the drafter; 0: those of the best expected speedup
  std::string dtype = "fp32";  // of decoding
  std::filesystem::path out = "recipe.toml";
  std::string format = "hf";  // of the export
};

// A drafter cut out of the target.
struct Candidate {
  int64_t layers = 0;               // of the decoder
  std::string decoder_layers = {};  // as PruneOptions has them
  std::string encoder_layers = {};  // half of them
  double alpha = 0;                 // share of accepted drafts, assumed by the number of layers
  int64_t numbers = 0;              // parameters
  infer::StepCosts costs = {};      // beside the target
  double example_seconds = 0;       // of training on an example once
};

// A target, and what is found out about it; each function below fills in its part.
struct Starter {
  infer::LoadedModel loaded;
  model::TransformerConfig config;
  bool chat = false;  // prompts are messages in the chat template
  std::string task;
  int64_t max_new_tokens = 0;
  int64_t lines = 0;  // different lines of the text; 0: the target writes its prompts

  double step = 0;        // seconds of a token
  double batch_step = 0;  // and of a token in each of kBatch rows
  std::vector<Candidate> candidates{};

  size_t chosen = 0;
  int64_t prompts = 0;   // to train on
  int64_t held_out = 0;  // to measure on
  double prompts_seconds = 0;
  double answers_seconds = 0;
  double training_seconds = 0;
  double evaluation_seconds = 0;
};
inline constexpr int64_t kBatch = 64;         // rows of teacher outputs
inline constexpr int64_t kLongestWindow = 8;  // that is measured

// Looks at target and text. Errors: a UserError for what could only fail later: an `out` that exists, a task without
// what it needs, too little or too long text, and those of infer::load_model_directory().
Starter look_at(const StarterOptions& options, at::Device device);
// Measures steps of the target, and steps and training of drafters of 1, 2, 4 and a quarter of its decoder layers.
// Errors: UserError if there are no fewer layers.
void measure(Starter& starter, const StarterOptions& options, at::Device device);
// Chooses the best candidate whose training fits the hours. Errors: UserError with the hours that are needed, or for a
// disk without room.
void choose(Starter& starter, const StarterOptions& options);
std::string recipe_text(const Starter& starter, const StarterOptions& options);

// Text that CMake embeds.
struct StarterText {
  std::string_view name;
  std::string_view text;
};
std::span<const StarterText> starter_texts();

}  // namespace draftsmith::recipes
