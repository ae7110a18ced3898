// Beam search with the target alone: the method `beam`, its options, and the beams and finished outputs of a source.
// Its outputs and their scores are those of Transformers' num_beams, length_penalty and early_stopping.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/registry.h"
#include "infer/decode_options.h"
#include "infer/loop/processors.h"
#include "infer/loop/rows.h"
#include "model/files/generation_config.h"

namespace draftsmith::infer {

// ---- Beams of one source
// The continuations that go on and the outputs that are finished, as Transformers' beam search chooses them.

// End of the search of a source: as many outputs are finished as there are beams, and
enum class EarlyStopping {
  kFalse,  // the best running beam, scored at its present length, is no better than the worst of them
  kTrue,   // nothing else
  kNever,  // the best running beam is no better, scored at the length limit if the length penalty is positive
};

// Returns their names in options, which are Transformers' values of `early_stopping`.
const NamedValues<EarlyStopping>& early_stoppings();

struct BeamSettings {
  int64_t beams = 4;          // running beams of a source, >= 1
  double length_penalty = 1;  // finished outputs are ordered by (sum of log p) / tokens^length_penalty
  EarlyStopping early_stopping = EarlyStopping::kFalse;
  int64_t outputs = 1;  // best outputs of a source that are wanted, 1..beams
};

// Continuation of a running beam by one token.
struct Continuation {
  int64_t beam = 0;  // of the source, 0..beams-1
  int64_t token = 0;
  double score = 0;  // log-probability of the beam's tokens and this one
};

// Finished output.
struct Hypothesis {
  std::vector<int64_t> tokens;  // new tokens, EOS included
  double score = 0;             // (sum of log p) / tokens^length_penalty
};

// Score of a beam that cannot win: of the copies of the first beam at the beginning, and of beams that have ended.
inline constexpr double kHopeless = -1e9;

class Hypotheses {
 public:
  // `limit`: most new tokens of an output.
  Hypotheses(const BeamSettings& settings, int64_t limit);

  // Takes the best continuations of the running beams, best first: more than `beams`, so that some go on where others
  // end. ended[i] says that continuation i ends its output. outputs[b] are the new tokens of running beam b. Returns
  // the `beams` continuations that go on.
  std::vector<Continuation> advance(std::span<const Continuation> best, const std::vector<char>& ended,
                                    std::span<const std::span<const int64_t>> outputs);

  // Returns whether no later step can change the finished outputs.
  bool done() const { return done_; }
  // Returns the finished outputs, best first, at most `beams`.
  const std::vector<Hypothesis>& finished() const { return finished_; }

 private:
  double scored(double sum, int64_t tokens) const;
  void finish(const Continuation& last, std::span<const int64_t> output);
  // Returns whether a running beam with that sum after so many tokens could still be among the finished outputs.
  bool improves(double sum, int64_t tokens) const;

  BeamSettings settings_;
  int64_t limit_;
  std::vector<Hypothesis> finished_;
  bool done_ = false;
};

// ---- The method

// Returns the settings of method beam: those of the options, and the model's own where options are silent; beams are 4
// where neither says more than 1. Errors: UserError if more outputs are wanted than there are beams.
BeamSettings beam_settings(const DecodeOptions& options, const model::GenerationConfig& generation);

// Decodes every source of the batch to its end. batch.rows are `beams` equal rows for each source, and the first one's
// output is the index of the source's first result. batch.finished becomes `outputs` rows for each source, best first,
// with scores; the first of them has the counts. A source leaves the batch as soon as its search ends.
void decode_beams(model::LanguageModel& target, const BeamSettings& beams, const DecodeSettings& settings,
                  RowBatch& batch, PhaseTimer& timer);

}  // namespace draftsmith::infer
