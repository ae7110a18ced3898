// The methods inside the model: `early-exit`, `calm` (CALM, calm.cpp) and `ppd` (predictive pipelined decoding,
// ppd.cpp), with the measures and counts that they read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/aten.h"
#include "base/error.h"
#include "base/registry.h"
#include "infer/decode_options.h"
#include "infer/load_models.h"
#include "infer/loop/decode_stats.h"
#include "infer/loop/processors.h"
#include "infer/loop/rows.h"
#include "model/models/exits.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::infer {

// ---- Measures of early layers

// Returns the cosine similarity of each row of two hidden states [B,...] of the same size, in [-1,1]; NaN if one of
// them is zero.
std::vector<double> cosine_similarities(const at::Tensor& a, const at::Tensor& b);

// Returns the difference of the two largest probabilities at temperature 1 of each row of logits [B,V]; 1 if only one
// token is possible, NaN if the logits are no distribution.
std::vector<double> top_two_margins(const at::Tensor& logits);

// ---- CALM
// Schuster et al. 2022, the early-exit baseline of BiLD's section 7.2: each token leaves the decoder at the first layer
// where its hidden state looks finished. That hidden state is then its input to all later layers.

// Measure that decides whether a hidden state is finished.
enum class ExitMeasure {
  kSaturation,  // cosine similarity to the previous layer's output; 0 after layer 1, which has none before it
  kMargin,      // difference of the two largest probabilities of the layer's exit
};

// Returns their names in options.
const NamedValues<ExitMeasure>& exit_measures();

struct CalmSettings {
  ExitMeasure measure = ExitMeasure::kSaturation;
  double threshold = 0.9;  // lambda
  double decay = 4;        // temp
};

// Returns the threshold that the measure must pass at the new token with index t (from 0) of at most N = `longest`:
// lambda_t = clip(0.9 lambda + 0.1 exp(-temp t / N), 0, 1). The ends do not decay: at lambda >= 1 no token leaves
// early, at lambda <= 0 every token leaves at layer 1.
double calm_threshold(const CalmSettings& settings, int64_t t, int64_t longest);

// Decodes every row to its end, greedily or by sampling, as decode_plainly() does. Writes layer_runs and exits_by_layer
// of the rows' statistics. A token's logits come from the exit where it left, after the last layer from the model's own
// head. The margin is measured before the logits processors are applied. Without `exits` (nullptr) all exits read the
// model's final norm and head.
void decode_calm(model::TransformerModel& target, const model::Exits* exits, const CalmSettings& calm,
                 const DecodeSettings& settings, RowBatch& batch, PhaseTimer& timer);

// ---- Predictive pipelined decoding
// Yang et al. 2024, algorithm 2: exact, greedily and by sampling (appendix B). Layer d-bar predicts k candidates for
// the token after token t. Before t runs through its last d - d-bar layers, a branch for each candidate runs the first
// d - d-bar layers, all branches as one pass. The branch of the actual next token continues from there; the others are
// dropped. The next token is always chosen from the last layer, so the candidates change no output. The paper runs
// branches and last layers at the same time, on several devices (count_run()).

struct PpdSettings {
  int64_t early_layer = 0;  // d-bar, d/2 .. d-1
  int64_t candidates = 3;   // k
};

// One token's run through the decoder.
struct PpdRun {
  bool resumed = false;   // a branch had already run the token's first d - d-bar layers
  int64_t branches = 0;   // branches that ran meanwhile, each the first d - d-bar layers of a candidate
  bool followed = false;  // the run's new token is not the last of its sequence
  bool matched = false;   // the run's new token was one of the branches
};

// Adds a run to latency_units, compute_units, layer_runs, early_predictions and early_matches, of a model with d =
// `layers`.
//
// Latency: d units for a run, d-bar units if it resumed: branches run beside the last d - d-bar layers. Compute: the
// latency, and d - d-bar units for each branch. Predictions and matches count only tokens that another token follows,
// because only these can save time. With k branches for every token the units equal theorem 4.1 at the counted rate.
void count_run(int64_t layers, int64_t early_layer, const PpdRun& run, DecodeStats& stats);

// Returns the k most likely tokens of each row of logits [B,V], in falling order; fewer if others are ruled out (-inf
// or NaN).
std::vector<std::vector<int64_t>> most_likely_tokens(const at::Tensor& logits, int64_t k);

// Decodes every row to its end, greedily or by sampling, with the tokens and random numbers of decode_plainly(). Writes
// layer_runs, early_predictions, early_matches, latency_units and compute_units of the rows' statistics
// (count_run()). Without `exits` (nullptr) the model's final norm and head read layer d-bar. Candidates that end a
// row have no branch, nor have rows with one token left. check_inside() must have found no problem with the settings.
void decode_ppd(model::TransformerModel& target, const model::Exits* exits, const PpdSettings& ppd,
                const DecodeSettings& settings, RowBatch& batch, PhaseTimer& timer);

// ---- Checks and the choice of a method

// Returns the target as a transformer, whose layers can be read; nullptr after a problem is reported at `where`.
model::TransformerModel* transformer_of(model::LanguageModel& target, const std::string& where, Problems& problems);

// Returns the target as a transformer, which transformer_of() has found no problem with.
model::TransformerModel& inside_model(model::LanguageModel& target);

// Returns the number of layers that draft in the method early-exit: the option, else the first exit, else 1.
int64_t exit_layer_of(const DecodeOptions& options, const model::Exits* exits);

// Reports a problem at `where` if the target is no transformer or the exits belong to another model. Returns whether
// all is well.
bool check_layers(const GenerationModels& models, const std::string& where, Problems& problems);

// Reports problems of calm's and ppd's options with the models, exits that are not the target's, and exits named by the
// options that have none at the layer read. Other methods have no such problems.
void check_inside(const GenerationModels& models, const DecodeOptions& options, Problems& problems);

// Returns the settings of ppd; d-bar is the option, else the first exit from half of the layers to all but one, else
// half.
PpdSettings ppd_settings(const GenerationModels& models, const DecodeOptions& options);

// Decodes by calm or ppd.
void decode_inside(const GenerationModels& models, const DecodeOptions& options, const DecodeSettings& settings,
                   RowBatch& batch, PhaseTimer& timer);

}  // namespace draftsmith::infer
