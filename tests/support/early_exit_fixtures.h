// Small models of several families whose first layers predict what the whole model does now and then, for tests of
// methods inside the model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "infer/generator.h"
#include "model/transformer/transformer_model.h"
#include "tests/support/token_ids.h"

namespace draftsmith::infer::testing {

constexpr int64_t kExitLayers = 4, kExitVocabulary = 24;

struct ExitModel {
  std::string family = "t5";  // or mt5, llama, gpt2, gpt_neox, bloom
  at::ScalarType type = at::kDouble;
  int64_t layers = kExitLayers, vocabulary = kExitVocabulary;
};

// Weights large enough that outputs vary, EOS likelier than other tokens, later layers that change less than the first.
std::unique_ptr<model::TransformerModel> exit_model(const ExitModel& wanted);

// A model of its own that is made of the first decoder layers of `model`.
std::unique_ptr<model::TransformerModel> first_layers(const model::TransformerModel& model, int64_t layers);

// Sources of different lengths, or prompts.
std::vector<std::vector<int64_t>> exit_sources(const model::TransformerModel& model);

// Options of up to 14 new tokens at temperature 0.
DecodeOptions exit_options(const std::string& method, int64_t batch = 1);

// Exit `layer` of the model is its drafter; 0: none.
GenerationModels exit_models(model::TransformerModel& model, int64_t layer = 0);

// The model's outputs for exit_sources().
std::vector<GenerationResult> run_exit(model::TransformerModel& model, int64_t layer, const DecodeOptions& options);

}  // namespace draftsmith::infer::testing
