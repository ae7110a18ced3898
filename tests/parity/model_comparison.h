// How a model of ours is compared with a reference: logits, cached steps, gradients, greedy outputs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "model/files/generation_config.h"
#include "tests/parity/transformers_reference.h"

namespace draftsmith::model {

constexpr double kLogitsTolerance = 1e-4, kGradientTolerance = 1e-3;

std::unique_ptr<TransformerModel> load(const std::filesystem::path& directory, bool pack,
                                       at::ScalarType dtype = at::kFloat);

at::Tensor forward_logits(TransformerModel& model, const Reference& reference);

// The largest relative difference over the rows' own positions.
double logits_difference(const at::Tensor& logits, const Reference& reference);

// The same for logits of cached steps of 0..8 tokens a row, each row its own number, with rollbacks between them.
double steps_difference(TransformerModel& model, const Reference& reference);

// Loss and the gradient of every parameter.
void expect_equal_gradients(const std::string& name, TransformerModel& model, const Reference& reference);

// Generation settings of a directory with this generation_config.json, as Transformers would save it.
GenerationConfig settings_of(const nlohmann::json& json, const TransformerModel& model);

// What greedy decoding puts out, EOS included, in batches of sources or prompts of different lengths.
Lists greedy_outputs(TransformerModel& model, const Lists& sources, int64_t new_tokens, int64_t batch_size,
                     const std::optional<GenerationConfig>& settings = {});

}  // namespace draftsmith::model
