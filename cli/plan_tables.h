// The tables of `draftsmith plan`: the papers' formulas (evaluate/costs/theory.h) for what the command line asks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace draftsmith::cli {

// Speculative decoding. Each alpha with each cost ratio: one of each prints a table of windows, several a table of best
// windows; none at all: usual values.
struct SpeculativeQuestion {
  std::vector<double> alphas;
  std::vector<double> cost_ratios;
  std::vector<double> curve = {1};  // times of a target step of 1, 2, 3, ... tokens, in any unit
  double operations_ratio = 0;
  int64_t max_window = 64;
  bool json = false;
};
void print_speculative(SpeculativeQuestion asked);

// SpecGame: ArD, and SpS and AsG for each of their rates.
struct SpecGameQuestion {
  std::vector<double> acceptance;  // P of SpS
  std::vector<double> agreement;   // P of AsG
  double draft_ms = 0;             // of a drafter step
  std::vector<double> target_ms;   // of a target step of 1, 2, 3, ... tokens
  int64_t max_tokens = 7;
  bool json = false;
};
void print_specgame(const SpecGameQuestion& asked);

// Predictive pipelined decoding.
struct PpdQuestion {
  int64_t layers = 0;
  int64_t early_layer = 0;           // 0: half of them
  std::vector<std::string> matches;  // "3:0.54", candidates and match rate
  int64_t tokens = 128;
  bool json = false;
};
// Errors: UserError for what is no match or an early layer outside the upper half.
void print_ppd(const PpdQuestion& asked);

}  // namespace draftsmith::cli
