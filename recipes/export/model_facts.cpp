#include "recipes/export/model_facts.h"

#include <cmath>

#include <fmt/format.h>

#include "base/sha256.h"
#include "model/transformer/parameters.h"

namespace draftsmith::recipes {

namespace {

std::string hash_of(const at::Tensor& parameter, at::ScalarType stored) {
  const at::Tensor bytes = parameter.detach().to(at::kCPU, stored).contiguous();
  return sha256({static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.nbytes())});
}

void compare_parameters(const ModelFacts& before, const ModelFacts& after, const std::string& where,
                        std::vector<Problem>& problems) {
  for (const auto& [name, hash] : before.parameters) {
    const auto found = after.parameters.find(name);
    if (found != after.parameters.end() && found->second == hash) continue;
    problems.push_back(
        {.where = fmt::format("{}: parameter {}", where, name),
         .what = found == after.parameters.end() ? "is missing in the export"
                                                 : "has other values in the export than in the model",
         .expected = "sha256 " + hash.substr(0, 16),
         .found = found == after.parameters.end() ? "nothing" : "sha256 " + found->second.substr(0, 16)});
  }
  for (const auto& [name, hash] : after.parameters) {
    if (!before.parameters.contains(name)) {
      problems.push_back(
          {.where = fmt::format("{}: parameter {}", where, name), .what = "is in the export but not in the model"});
    }
  }
}

void compare_logits(const ModelFacts& before, const ModelFacts& after, const FactLimits& limits,
                    const std::string& where, std::vector<Problem>& problems) {
  const bool same_shape = before.logits.sizes() == after.logits.sizes();
  const double difference = same_shape ? relative_difference(after.logits, before.logits) : 0;
  if (same_shape && difference <= limits.logits) return;
  problems.push_back({.where = where,
                      .what = "gives other logits for the probes than the model",
                      .expected = fmt::format("equal up to {:.0e} of the largest", limits.logits),
                      .found = same_shape ? fmt::format("a difference of {:.2e}", difference) : "another shape"});
}

}  // namespace

ModelFacts facts_of(model::TransformerModel& model, const Probes& probes, at::ScalarType stored,
                    const AlphaCheck* alpha) {
  ModelFacts facts;
  for (const auto& [name, parameter] : model.parameters()) {
    const bool stays = stored == at::kHalf && model::keeps_fp32_in_half(model.config(), name);
    facts.parameters[name] = hash_of(parameter, stays ? at::kFloat : stored);
  }
  facts.logits = probe_logits(model, probes);
  if (alpha != nullptr) facts.alpha = alpha->measure(model);
  return facts;
}

void add_exits(ModelFacts& facts, const model::Exits& exits, at::ScalarType stored) {
  for (const auto& [name, parameter] : exits.parameters()) facts.parameters[name] = hash_of(parameter, stored);
}

FactLimits limits_for(bool same_type, at::ScalarType stored) {
  if (same_type) return {};
  if (stored == at::kBFloat16) return {.logits = 0.1, .alpha = 0.02};
  if (stored == at::kHalf) return {.logits = 0.02, .alpha = 0.01};
  return {.logits = 1e-4, .alpha = 1e-3};
}

std::vector<Problem> differences(const ModelFacts& before, const ModelFacts& after, const FactLimits& limits,
                                 const std::string& where) {
  std::vector<Problem> problems;
  compare_parameters(before, after, where, problems);
  compare_logits(before, after, limits, where, problems);
  if (before.alpha && after.alpha && !(std::abs(before.alpha->alpha - after.alpha->alpha) <= limits.alpha)) {
    problems.push_back({.where = where,
                        .what = "predicts the target differently than the model",
                        .expected = fmt::format("alpha {:.4f}, up to {:.0e}", before.alpha->alpha, limits.alpha),
                        .found = fmt::format("{:.4f}", after.alpha->alpha)});
  }
  return problems;
}

}  // namespace draftsmith::recipes
