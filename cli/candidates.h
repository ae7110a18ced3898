// Drafters that a model could get: what each costs beside it on this machine, and what theory expects of it. `new`
// chooses one of them, `plan` without a drafter lists them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/theory/formulas.h"
#include "infer/costs/step_costs.h"
#include "infer/load_models.h"
#include "model/files/model_directory.h"

namespace draftsmith::cli {

// A kind of drafter that is made out of its target and trained. A new kind is one more row in candidates.cpp.
struct CandidateKind {
  const char* name;
  const char* start = "";             // in its train stage; <target>: the target's directory, <cut>: fewer ids
  const char* drafter_key = "model";  // by which a suite names it
  bool prunes_vocabulary = false;     // to ids that the target's outputs use most
  bool reads_encoder = false;         // of the target
  bool reads_states = false;          // of the target, stored; one layer of its own: nothing is pruned
  double alpha = 0;                   // accepted beside pruned layers of that number
  double rate = 1;                    // of learning, beside that of pruned layers
  double lambda = 0.1;                // share of cross entropy where it is distilled
  bool runs_target = false;           // in training anyway, so that distilling costs no pass
};

struct Candidate {
  const CandidateKind* kind = nullptr;               // nullptr: prompt look-up, which is never trained
  int64_t every = 1;                                 // of so many of the decoder's layers one stays
  int64_t layers = 0;                                // that stay
  int64_t vocabulary = 0;                            // ids that stay; 0: all
  int64_t length = 0;                                // of outputs; 0: they never end
  bool distilled = false;                            // from the target's distributions; else aligned with its outputs
  double alpha = 0;                                  // share of accepted drafts that is assumed
  infer::StepCosts costs = {};                       // beside the target
  double numbers = 0;                                // that are trained
  double example_seconds = 0;                        // of training on an example once
  double states_seconds = 0;                         // of storing the target's states of it before, for all epochs
  double minutes = 0;                                // of its training, where that is planned
  std::map<std::string, std::string> refusals = {};  // of formats of exports (recipes::export_refusals)

  std::string name() const;
  int64_t longest() const { return std::ssize(costs.target) - 1; }
  evaluate::BestWindow best(double at) const { return evaluate::best_window(at, costs, longest(), length); }
  // Returns the least alpha with which a window gains; nothing if none does.
  std::optional<double> pays_from() const { return evaluate::break_even_alpha(costs, longest(), length); }
  // Returns the best window at the assumed alpha or, where none gains, at one that pays; 0: none does.
  int64_t window() const { return best(std::max(alpha, pays_from().value_or(1))).window; }
  // Returns the expected speedup; up to 1, how near the assumed alpha is to one that pays.
  double score() const;
  // Returns what a choice goes by. For GGUF, drafters that it holds come first if theory expects at least 1.1 of them.
  std::pair<bool, double> rank(bool for_gguf) const;
};

struct CandidateInputs {
  const infer::LoadedModel& target;   // as it decodes, with its tokenizer
  model::LoadOptions load;            // how it was loaded
  infer::CalibrationContext context;  // of timed steps
  std::filesystem::path folder;       // that holds candidates while they are measured
  int64_t longest = 8;                // window
  int64_t length = 0;                 // as in Candidate
  int64_t example_tokens = 0;         // of an example to train on; 0: training is not timed
  bool distils = false;               // also kinds that need a pass of the target for it
  double alpha = 0;                   // that is assumed of one decoder layer
  double alpha_doubled = 0;           // more for twice as many layers; 0: `alpha` is assumed of all
};

// Makes and measures pruned drafters of about 1, 2, 4 and a quarter of the decoder layers, the other kinds with as many
// layers as the two best of them, and prompt look-up, the last one. Errors: those of loading and pruning, Interrupted.
std::vector<Candidate> measure_candidates(const CandidateInputs& inputs);

// Returns a table of them; below it, why one was chosen, if any: the alpha that it needs, and what exports hold it.
std::string candidates_text(std::span<const Candidate> candidates, const Candidate* chosen = nullptr);

// Returns the names of the kinds, and "any".
std::vector<std::string> candidate_kinds();

}  // namespace draftsmith::cli
