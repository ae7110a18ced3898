// Tuning a router (`draftsmith eval --tune-router`): the threshold and the longest draft that decode fastest on
// validation data, by measured tokens per second, become the defaults of a copy of the router. What was trained stays
// as it is: it may belong to a finished stage, and other machines decode fastest elsewhere.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "infer/evaluation_options.h"

namespace draftsmith::infer {

// The suite with a grid on the tuning task for every run that asks a router: thresholds and longest drafts where the
// run lists none, and choose_on where it has none and may have it, so that other tasks run what is chosen. The
// task: that which a router's run chooses on, else which any run chooses on, else the first. Errors: UserError when no
// run asks a router, or there is no task.
EvaluationOptions with_tuning_grids(const EvaluationOptions& options);

struct TunedRouter {
  std::filesystem::path router;  // as it was trained
  std::string drafter;
  std::string task;
  double temperature = 0;
  double threshold = 0;
  int64_t max_draft = 0;
  double tokens_per_second = 0;
  double slowest = 0;  // of the grid
  int64_t settings = 0;
};

// The fastest setting of each router and drafter in the results of such a suite; at the lowest temperature that they
// were run at.
std::vector<TunedRouter> tuned_routers(const EvaluationOptions& suite, const nlohmann::ordered_json& results);

// Writes the tuned copies, OUT/router, or OUT/router.DRAFTER where there are several, replacing those of an earlier
// run; returns what to tell the user.
std::string write_tuned_routers(const std::vector<TunedRouter>& tuned, const std::filesystem::path& out_dir);

}  // namespace draftsmith::infer
