// Tables of `draftsmith plan`, computed by the papers' formulas (evaluate/theory/formulas.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace draftsmith::cli {

// Question about speculative decoding, for each alpha with each cost ratio. One of each gives a table of windows,
// several give a table of best windows. Empty lists stand for usual values.
struct SpeculativeQuestion {
  std::vector<double> alphas;
  std::vector<double> cost_ratios;
  std::vector<double> curve = {1};  // times of a target step of 1, 2, 3, ... tokens, in any unit
  double operations_ratio = 0;
  int64_t max_window = 64;
  bool json = false;
  std::vector<std::string> origins = {};  // of measured times, a line each, printed before tables
};
void print_speculative(SpeculativeQuestion asked);

// Question about SpecGame: ArD alone, SpS for each acceptance rate, AsG for each agreement rate.
struct SpecGameQuestion {
  std::vector<double> acceptance;  // P of SpS
  std::vector<double> agreement;   // P of AsG
  double draft_ms = 0;             // time of a drafter step
  std::vector<double> target_ms;   // times of target steps of 1, 2, 3, ... tokens
  int64_t max_tokens = 7;
  bool json = false;
  std::vector<std::string> origins = {};  // as above
};
void print_specgame(const SpecGameQuestion& asked);

// Question about predictive pipelined decoding.
struct PpdQuestion {
  int64_t layers = 0;
  int64_t early_layer = 0;           // 0: half of the layers
  std::vector<std::string> matches;  // "3:0.54", candidates and match rate
  int64_t tokens = 128;
  bool json = false;
};
// Errors: UserError for a malformed match, and for an early layer outside the upper half.
void print_ppd(const PpdQuestion& asked);

}  // namespace draftsmith::cli
