// Options of exits that a run trains (model/kinds/exits.h): with their whole model by losses at several layers (BiLD's
// early exit, Kim et al. 2023, section 4.4; CALM, Schuster et al. 2022), or as heads of a frozen model (the
// early-prediction heads of PPD, Yang et al. 2024, section 5 and table 4).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "model/kinds/exits.h"

namespace draftsmith::train {

// Losses at several layers of a model that is trained with them: sum of w_i L_i, the last layer included.
struct ExitTrainingOptions {
  std::string loss = "early_exit_average";
  std::vector<int64_t> layers = {};  // below the last; rising
  std::vector<double> weights = {};  // of `weighted`: one for each of `layers`, then the last layer's
  bool own_norms = false;
  static Fields<ExitTrainingOptions> fields();
};

// Heads of a frozen model.
struct HeadOptions {
  std::vector<int64_t> layers = {};  // below the last; rising
  std::string form = "full";         // or "low_rank"
  std::optional<int64_t> rank = {};  // of low_rank, which needs it
  bool own_norms = false;
  uint64_t seed = 1;
  static Fields<HeadOptions> fields();
};

// Adds a problem at `where` for layers that do not rise, a layer that is given twice, and one that is not below the
// last of `decoder_layers` (0: not known yet).
void check_early_layers(const std::vector<int64_t>& layers, int64_t decoder_layers, const std::string& where,
                        Problems& problems);
// Adds problems of options that are valid by themselves but do not fit a model with so many layers.
void check_fits(const ExitTrainingOptions& options, int64_t decoder_layers, const std::string& where,
                Problems& problems);

// Returns the exits that valid options describe in a model of `decoder_layers` layers.
model::ExitConfig exit_config(const ExitTrainingOptions& options, int64_t decoder_layers);
model::ExitConfig exit_config(const HeadOptions& options);

// Returns the weights of the losses, one for each exit and then the last layer's: 1/2 and 1/2 (early_exit_average), i /
// sum of j over all N layers (calm_weighted), or the given ones unchanged (weighted).
std::vector<double> loss_weights(const ExitTrainingOptions& options, int64_t decoder_layers);

}  // namespace draftsmith::train
