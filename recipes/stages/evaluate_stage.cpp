// kind = "evaluate": an evaluation suite inside a recipe. Makes results.json, results.csv, report.html and hyp/.
#include <iostream>

#include "base/device.h"
#include "evaluate/evaluation.h"
#include "recipes/stages/stages.h"

namespace draftsmith::recipes {

void Execution::apply_to(evaluate::SuiteOptions& suite) const {
  if (device != Execution().device) suite.device = device;
  if (threads > 0) suite.threads = threads;
}

namespace {

void run_evaluate(const evaluate::SuiteOptions& options, const StageContext& run) {
  evaluate::SuiteOptions suite = options;
  run.execution.apply_to(suite);
  const ThreadCount threads(0);  // later stages have those of now
  const evaluate::SuiteContext context{.quiet = run.execution.quiet};
  const auto result = evaluate::run_evaluation(suite, run.directory, context);
  std::cout << result.table << std::flush;
  evaluate::throw_if_failed(result);  // an evaluation with a failed check is not finished
}

}  // namespace

StageKind evaluate_stage() {
  return make_stage_kind<evaluate::SuiteOptions>("evaluate", 1, "measures methods against baselines", run_evaluate,
                                                 Processes::kOne);
}

}  // namespace draftsmith::recipes
