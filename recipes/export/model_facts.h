// Properties that a model must keep in an export: its parameters, bit for bit in the stored type, its logits for the
// probes, and its alpha against a target.
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
  at::Tensor logits;                              // logits of the probes
  std::optional<infer::ForcedAlpha> alpha;
};

// Measures a model. `stored` is the type of the export's files; in fp16 some parameters stay fp32, as save_model()
// keeps them.
ModelFacts facts_of(model::TransformerModel& model, const Probes& probes, at::ScalarType stored,
                    const AlphaCheck* alpha);

// Adds the parameters of the model's exits.
void add_exits(ModelFacts& facts, const model::Exits& exits, at::ScalarType stored);

// Largest allowed differences: rounding of sums, and rounding of weights if the type changed.
struct FactLimits {
  double logits = 1e-5;  // relative to the largest
  double alpha = 1e-4;
};
FactLimits limits_for(bool same_type, at::ScalarType stored);

// Returns a problem for each property that the export changed. `where` is the new directory.
std::vector<Problem> differences(const ModelFacts& before, const ModelFacts& after, const FactLimits& limits,
                                 const std::string& where);

}  // namespace draftsmith::recipes
