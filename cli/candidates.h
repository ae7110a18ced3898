// Drafters that a model could get: what each costs beside it on this machine, and what theory expects of it. `new`
// chooses one of them, `plan` without a drafter lists them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/aten.h"
#include "evaluate/theory/formulas.h"
#include "infer/costs/step_costs.h"
#include "infer/load_models.h"
#include "model/files/model_directory.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::cli {

// A kind of drafter that is cut out of its target and trained. A new kind is one more row in candidates.cpp.
struct CandidateKind {
  const char* name;
  const char* start = "";                // in its train stage beside `from`; <target> stands for the target's directory
  const char* drafter_key = "model";     // by which a suite names it
  bool prunes_vocabulary = false;        // to ids that the target's outputs use most
  bool (*fits)(const model::TransformerConfig& target, int64_t layers, at::ScalarType type) = nullptr;  // null: always
  double alpha = 0;                      // accepted beside pruned layers of that number
  double lambda = 0.1;                   // share of cross entropy where it is distilled
  bool runs_target = false;              // in training anyway, so that distilling costs no pass
};

struct Candidate {
  const CandidateKind* kind = nullptr;  // nullptr: prompt look-up, which is never trained
  int64_t every = 1;                    // of so many of the decoder's layers one stays
  int64_t layers = 0;                   // that stay
  int64_t vocabulary = 0;               // ids that stay; 0: all
  int64_t length = 0;                   // of outputs; 0: they never end
  bool distilled = false;               // from the target's distributions; else aligned with its outputs
  double alpha = 0;                     // share of accepted drafts that is assumed
  infer::StepCosts costs = {};          // beside the target
  double numbers = 0;                   // that are trained
  double example_seconds = 0;           // of training on an example once
  double minutes = 0;                   // of its training, where that is planned
  std::map<std::string, std::string> refusals = {};  // of formats of exports (recipes::export_refusals)

  std::string name() const;
  evaluate::BestWindow best(double at) const;
  // Returns the least alpha with which a window gains; nothing if none does.
  std::optional<double> pays_from() const;
  // Returns the best window at the assumed alpha or, where none gains, at one that pays; 0: none does.
  int64_t window() const;
  // Returns the expected speedup; below 1, how near the assumed alpha is to one that pays.
  double score() const;
};

struct CandidateInputs {
  const infer::LoadedModel& target;  // as it decodes, with its tokenizer
  model::LoadOptions load;           // how it was loaded
  infer::CalibrationContext context;  // of timed steps
  int64_t longest = 8;               // window
  int64_t length = 0;                // as in Candidate
  int64_t example_tokens = 0;        // of an example to train on; 0: training is not timed
  bool distils = false;              // kinds that need a pass of the target for it, too
  double alpha = 0;                  // that is assumed of one decoder layer
  double alpha_doubled = 0;          // more for twice as many layers
};

// Makes and measures pruned drafters of about 1, 2, 4 and a quarter of the decoder layers, the other kinds with as many
// layers as the two best of them, and prompt look-up, the last one. Errors: those of loading and pruning, Interrupted.
std::vector<Candidate> measure_candidates(const CandidateInputs& inputs);

// Returns a row for each candidate and marks the chosen one, if any.
std::string candidates_table(std::span<const Candidate> candidates, const Candidate* chosen = nullptr);

// Returns the names of the kinds.
std::vector<std::string> candidate_kinds();

// Returns a kind's lines of a train stage for the model in `target`.
std::string start_lines(const CandidateKind& kind, const std::filesystem::path& target);

}  // namespace draftsmith::cli
