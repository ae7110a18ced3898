// The list of stage kinds, and kind = "evaluate": an evaluation suite inside a recipe.
#include "recipes/stage.h"

#include <iostream>
#include <utility>

#include "evaluate/evaluation.h"

namespace draftsmith::recipes {

void Execution::apply_to(evaluate::SuiteOptions& suite) const {
  if (device != ExecutionOptions().device) suite.device = device;
  if (threads > 0) suite.threads = threads;
}

namespace {

void run_evaluate(const evaluate::SuiteOptions& options, const StageContext& run) {
  evaluate::SuiteOptions suite = options;
  run.execution.apply_to(suite);
  const ThreadCount threads(0);  // later stages have those of now
  const auto result = evaluate::run_evaluation(suite, run.directory);
  std::cout << result.table << std::flush;
  evaluate::throw_if_failed(result);  // an evaluation with a failed check is not finished
}

}  // namespace

const Registry<StageKind>& stage_kinds() {
  static const Registry<StageKind> kinds = [] {
    std::vector<StageKind> all;
    for (const auto& stages :
         {data_stages(), train_stages(), prune_stages(), teacher_stages(), router_stages(), starter_stages()}) {
      all.insert(all.end(), stages.begin(), stages.end());
    }
    // Results of evaluate: results.json, report.html, hyp/.
    all.push_back(make_stage_kind<evaluate::SuiteOptions>("evaluate", 2, run_evaluate, Processes::kOne));
    return Registry<StageKind>("stage kind", std::move(all));
  }();
  return kinds;
}

}  // namespace draftsmith::recipes
