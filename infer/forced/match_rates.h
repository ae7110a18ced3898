// Match rates of early predictions (Yang et al. 2024, PPD's p-hat, tables 2 and 5 to 8): the share of new tokens that
// are among the k which a decoder layer finds most likely, by layer, k, head and position in the output.
// Reports: evaluate/report/self_drafting.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace draftsmith::model {
struct ModelInfo;  // model/transformer/language_model.h
}

namespace draftsmith::infer {

struct GenerationModels;  // infer/load_models.h

// How outputs are made whose tokens are predicted.
struct MatchDecoding {
  std::string name;  // in tables and CSV
  double temperature = 0;
  int64_t top_k = 0;  // 0: off
  double top_p = 1;   // 1: off
};

// Greedy decoding, sampling from the 3 most likely tokens ("top-k") and from a mass of 0.95 ("top-p"): the paper's.
std::vector<MatchDecoding> paper_decodings();

struct MatchRateOptions {
  std::vector<MatchDecoding> decodings = paper_decodings();
  std::vector<int64_t> layers = {};             // 1..N, rising; empty: 1..N-1
  std::vector<int64_t> candidates = {1, 3, 5};  // k, each 1..V
  int64_t bin = 2;                              // new tokens in a bin of positions
  int64_t bins = 8;                             // bins, 1..8; what comes after them is one more, where there is any
  int64_t max_new_tokens = 128;
  uint64_t seed = 1;
  int64_t batch_size = 16;
};

// One cell: of all new tokens at these positions.
struct MatchRate {
  std::string decoding;
  int64_t layer = 0;
  int64_t k = 0;
  bool trained = false;   // through the layer's exit; else through the model's own final norm and head
  std::string positions;  // "1-2", "3-4", ..., "17-" for all beyond the bins, "total"
  int64_t matches = 0;
  int64_t tokens = 0;

  double rate() const;  // NaN without tokens
};

// Adds a problem at `where` for layers and k beyond the model's.
void check_match_rates(const MatchRateOptions& options, const model::ModelInfo& target, const std::string& where,
                       Problems& problems);

// Decodes the prompts with each decoding and counts. Cells come in the order of decodings, layers, candidates, own head
// before exit, positions, total. An exit gives cells where it is more than the model's own norm and head. The target
// must be a TransformerModel; of `models` this reads target, exits, generation and target_tokenizer.
// check_match_rates() must have found no problem.
std::vector<MatchRate> match_rates(const GenerationModels& models, std::span<const std::vector<int64_t>> prompts,
                                   const MatchRateOptions& options = {});

// Counts outputs that are there already, one for each prompt, under the name of their `decoding`. Each position is
// predicted after all of the output before it, in one pass over the caches as decoding has them: padding ids are no
// candidates, and the processors of the model's generation settings act on early predictions too.
std::vector<MatchRate> count_matches(const GenerationModels& models, const std::string& decoding,
                                     std::span<const std::vector<int64_t>> prompts,
                                     std::span<const std::vector<int64_t>> outputs, const MatchRateOptions& options);

}  // namespace draftsmith::infer
