// What must be the same of a model before and after an export: its parameters, bit for bit in the stored type, its
// logits for the probes, and how well it predicts a target.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/aten.h"
#include "base/error.h"
#include "infer/forced/forced_alpha.h"
#include "model/kinds/exits.h"
#include "model/transformer/transformer_model.h"
#include "recipes/export/alpha_check.h"
#include "recipes/export/probes.h"

namespace draftsmith::recipes {

struct ModelFacts {
  std::map<std::string, std::string> parameters;  // canonical name -> SHA-256 in the stored type; exits' too
  at::Tensor logits;                              // of the probes
  std::optional<infer::ForcedAlpha> alpha;
};

// `stored` is the type that the export's files have; in fp16 some parameters stay fp32, as save_model() keeps them.
ModelFacts facts_of(model::TransformerModel& model, const Probes& probes, at::ScalarType stored,
                    const AlphaCheck* alpha);

// Adds the parameters of the model's exits.
void add_exits(ModelFacts& facts, const model::Exits& exits, at::ScalarType stored);

// How far the two may be apart: rounding of sums where no type was changed, that of the weights where one was.
struct FactLimits {
  double logits = 1e-5;  // relative to the largest
  double alpha = 1e-4;
};
FactLimits limits_for(bool same_type, at::ScalarType stored);

// Everything that an export changed and may not change; empty: the export holds the model. `where` is the new
// directory.
std::vector<Problem> differences(const ModelFacts& before, const ModelFacts& after, const FactLimits& limits,
                                 const std::string& where);

}  // namespace draftsmith::recipes
