// Probe inputs of an exported model and its logits for them. They show that the export computes the same as the model;
// `draftsmith verify` repeats the comparison later, also on other machines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/aten.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::recipes {

// Rows of token ids of different lengths. Logits are kept only at the last positions of each row: with a vocabulary of
// 250,000, logits of all positions would be larger than many drafters.
struct Probes {
  std::vector<std::vector<int64_t>> sources;  // input of the encoder; empty for decoder-only models
  std::vector<std::vector<int64_t>> targets;  // input of the decoder, start token included
  int64_t positions = 1;                      // last positions of each row with logits
};

// Returns the probes, which are equal for all models of a configuration.
Probes make_probes(const model::TransformerConfig& config);

// Returns the logits of the probes, fp32 on the CPU: [rows,positions,V].
at::Tensor probe_logits(model::TransformerModel& model, const Probes& probes);

// Returns the largest difference of two sets of logits, relative to the largest of `wanted`; infinite if `found` has a
// NaN. Shapes must be equal.
double relative_difference(const at::Tensor& found, const at::Tensor& wanted);

nlohmann::ordered_json to_json(const Probes& probes);

// Reads the probes of an exported directory. Errors: UserError at `where` if a model of `config` cannot read them.
Probes probes_from_json(const nlohmann::json& json, const model::TransformerConfig& config, const std::string& where);

// Write and read the logits' file. Errors: RunError if writing fails; UserError for a damaged file or another shape.
void write_probe_logits(const std::filesystem::path& file, const at::Tensor& logits);
at::Tensor read_probe_logits(const std::filesystem::path& file, const std::vector<int64_t>& shape);

}  // namespace draftsmith::recipes
