// kind = "evaluate": an evaluation suite inside a recipe. Makes results.json, results.csv, report.html and hyp/.
#include <iostream>

#include "base/device.h"
#include "evaluate/evaluation.h"
#include "recipes/stages/stages.h"

namespace draftsmith::recipes {

namespace {

// Returns the suite with the flags of the command line, which override the recipe.
evaluate::SuiteOptions with_flags(evaluate::SuiteOptions options, const Execution& execution) {
  if (execution.device != Execution().device) options.device = execution.device;
  if (execution.threads > 0) options.threads = execution.threads;
  return options;
}

void run_evaluate(const evaluate::SuiteOptions& suite, const StageContext& run) {
  const ThreadCount threads(0);  // later stages have those of now
  const evaluate::SuiteContext context{.quiet = run.execution.quiet};
  const auto result = evaluate::run_evaluation(with_flags(suite, run.execution), run.directory, context);
  std::cout << result.table << std::flush;
  evaluate::throw_if_failed(result);  // an evaluation with a failed check is not finished
}

}  // namespace

StageKind evaluate_stage() {
  StageKind kind =
      make_stage_kind<evaluate::SuiteOptions>("evaluate", 1, "measures methods against baselines", run_evaluate);
  kind.processes = Processes::kOne;
  return kind;
}

}  // namespace draftsmith::recipes
