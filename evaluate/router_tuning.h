// Tuning a router (`draftsmith eval --tune-router`): the threshold and the longest draft that decode fastest on
// validation data, by measured tokens per second, become the defaults of a copy of the router. What was trained stays
// as it is: it may belong to a finished stage, and other machines decode fastest elsewhere.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "evaluate/results/results.h"
#include "evaluate/suite/suite_options.h"

namespace draftsmith::evaluate {

// The suite with the defaults of their routers written out in runs that list no thresholds or no longest drafts, so
// that results say what was run. Errors: UserError for a damaged router; one that is not there is left to be refused
// later.
SuiteOptions with_router_defaults(const SuiteOptions& options);

// The suite with a grid for every run that tunes a router: thresholds and longest drafts where the run lists none, and
// choose_on where it has none, that of the other runs, so that other tasks run what is chosen. Lossy runs tune nothing
// and stay as they are, like those whose task measures no quality that sampled settings could be chosen by.
// Errors: UserError when no run asks a router, a router is left without a run to tune it, no run says which task is
// validation data, runs tune one router on different tasks, or two copies would get the same name.
SuiteOptions with_tuning_grids(const SuiteOptions& options);

struct TunedRouter {
  std::filesystem::path router;  // as it was trained
  std::string drafter;
  std::string place;  // of the copy in the output directory: "router"; of several "router.DRAFTER[.RUN]"
  std::string task;
  double temperature = 0;
  int64_t num_samples = 1;
  double threshold = 0;
  int64_t max_draft = 0;
  double tokens_per_second = 0;
  double slowest = 0;  // of the grid
  int64_t settings = 0;
};

// The fastest setting of each router and drafter in the results of such a suite. Compared is what decodes under the
// same conditions: of several, the lowest temperature and the fewest samples.
std::vector<TunedRouter> tuned_routers(const SuiteOptions& suite, const Results& results);

// Writes the tuned copies, replacing those of an earlier run; returns what to tell the user.
std::string write_tuned_routers(const std::vector<TunedRouter>& tuned, const std::filesystem::path& out_dir);

}  // namespace draftsmith::evaluate
