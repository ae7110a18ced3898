// kind = "evaluate": an evaluation suite inside a recipe. Makes results.json, results.csv, report.html and hyp/.
#include <iostream>

#include "evaluate/evaluation.h"
#include "recipes/stages/stages.h"

namespace draftsmith::recipes {

namespace {

void run_evaluate(const evaluate::SuiteOptions& suite, const StageContext& run) {
  evaluate::SuiteOptions options = suite;
  // Given flags of the command line override the recipe.
  const Execution nothing_said;
  if (run.execution.device != nothing_said.device) options.device = run.execution.device;
  if (run.execution.threads != nothing_said.threads) options.threads = run.execution.threads;
  const evaluate::SuiteContext context{.quiet = run.execution.progress == ProgressStyle::kQuiet};
  const auto result = evaluate::run_evaluation(options, run.directory, context);
  std::cout << result.table << std::flush;
  evaluate::throw_if_failed(result);  // an evaluation with a failed check is not finished
}

}  // namespace

StageKind evaluate_stage() {
  return make_stage_kind<evaluate::SuiteOptions>("evaluate", 2, "measures methods against baselines", run_evaluate);
}

}  // namespace draftsmith::recipes
