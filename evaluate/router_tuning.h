// Tuning of a router (`draftsmith eval --tune-router`): the threshold and the longest draft that decode fastest on
// validation data become the defaults of a copy of the router. The trained router stays as it is: it may belong to a
// finished stage, and other machines have other fastest settings.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "evaluate/results/results.h"
#include "evaluate/suite/setting_grid.h"
#include "evaluate/suite/suite_options.h"

namespace draftsmith::evaluate {

// Returns the suite with router defaults filled in where a run lists no thresholds or no longest drafts, so that
// results record them. Errors: UserError for a damaged router. A missing router is refused later.
SuiteOptions with_router_defaults(const SuiteOptions& options);

// Returns the suite with a grid in every run that tunes a router: thresholds, longest drafts and choose_on are filled
// in where the run lacks them, choose_on from other runs. Lossy runs tune nothing and stay as they are. So do runs that
// sample, if their task has no metric to choose by.
// Errors: UserError if no run asks a router, no run tunes some router, no run has a task of validation data, runs tune
// one router on different tasks, or two copies would get the same name.
SuiteOptions with_tuning_grids(const SuiteOptions& options);

// Router with its fastest setting.
struct TunedRouter {
  std::filesystem::path router;  // directory of the trained router
  std::string drafter;
  std::string place;  // name of the copy in the output directory: "router", of several "router.DRAFTER[.RUN]"
  std::string task;
  double temperature = 0;
  int64_t num_samples = 1;
  double threshold = 0;
  int64_t max_draft = 0;
  double tokens_per_second = 0;
  double slowest = 0;    // tokens per second of the slowest setting
  int64_t settings = 0;  // number of compared settings
};

// Returns the fastest setting of each router and drafter in the results of a suite from with_tuning_grids(), whose
// `settings` are given. Only settings of the lowest temperature and the fewest samples are compared.
std::vector<TunedRouter> tuned_routers(const SuiteOptions& suite, const std::vector<Setting>& settings,
                                       const Results& results);

// Writes the tuned copies, in place of those of an earlier run. Returns a message for the user.
std::string write_tuned_routers(const std::vector<TunedRouter>& tuned, const std::filesystem::path& out_dir);

}  // namespace draftsmith::evaluate
