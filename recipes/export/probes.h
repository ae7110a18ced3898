// Probe inputs of an exported model and the logits it gives for them: how an export proves that what it wrote computes
// what the model computes, and how `draftsmith verify` asks the same later, on another machine as well.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/aten.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::recipes {

// Rows of token ids of different lengths. Logits are kept at the last positions of each row only: a vocabulary of
// 250,000 times every position would be larger than many a drafter.
struct Probes {
  std::vector<std::vector<int64_t>> sources;  // what the encoder reads; empty for decoder-only models
  std::vector<std::vector<int64_t>> targets;  // what the decoder reads, start token included
  int64_t positions = 1;                      // of each row, counted from its end
};

// The same for every model of one configuration.
Probes make_probes(const model::TransformerConfig& config);

// Logits of the probes, fp32 on the CPU: [rows,positions,V].
at::Tensor probe_logits(model::TransformerModel& model, const Probes& probes);

// The largest difference of two sets of logits, relative to the largest of the second; infinite where the first hold
// NaN. Shapes must be equal.
double relative_difference(const at::Tensor& found, const at::Tensor& wanted);

nlohmann::ordered_json to_json(const Probes& probes);

// Probes of an exported directory that a model of `config` can be given. Errors: UserError at `where`.
Probes probes_from_json(const nlohmann::json& json, const model::TransformerConfig& config, const std::string& where);

// The logits' file. Errors: RunError when it cannot be written; UserError when it is damaged or of another shape.
void write_probe_logits(const std::filesystem::path& file, const at::Tensor& logits);
at::Tensor read_probe_logits(const std::filesystem::path& file, const std::vector<int64_t>& shape);

}  // namespace draftsmith::recipes
