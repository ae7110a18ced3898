#include "evaluate/measure/forced_alphas.h"

#include <algorithm>

#include "base/signals.h"

namespace draftsmith::evaluate {
namespace {

// Samples outputs of the setting's own model until there are those of the first `lines` lines.
void sample_outputs(const Setting& setting, size_t lines, const SuiteOptions& options, Engine& engine,
                    MeasuredTask& task) {
  std::vector<std::vector<int64_t>>& outputs = task.sampled[setting.model];
  const Setting sampling = sampling_of(setting);
  const auto batch = static_cast<size_t>(options.batch_size);
  while (outputs.size() < lines) {
    throw_if_stop_requested(kHowToGoOn);
    const size_t first = outputs.size();
    const auto prompts = std::span(task.prompts).subspan(first, std::min(batch, lines - first));
    for (LineRecord& record :
         engine.decode(sampling, {prompts, static_cast<int64_t>(first), task.max_new_tokens, false})) {
      outputs.push_back(std::move(record.ids));
    }
  }
}

}  // namespace

void measure_forced_alphas(const Setting& setting, const SuiteOptions& options, Engine& engine, MeasuredTask& task) {
  const auto lines = static_cast<size_t>(std::min(options.forced_lines, task.data.lines()));
  const auto prompts = std::span(task.prompts).first(lines);
  std::vector<std::vector<int64_t>> greedy;
  for (size_t line = 0; line < lines; ++line) greedy.push_back(task.own_greedy(setting)[line].ids);
  const std::string drafting = setting.drafter_label();
  task.forced[drafting] = engine.forced_alpha(setting, prompts, greedy);
  sample_outputs(setting, lines, options, engine, task);
  task.forced_sampled[drafting] = engine.forced_alpha(setting, prompts, task.sampled.at(setting.model));
}

}  // namespace draftsmith::evaluate
