#include "evaluate/suite/task_metric.h"

#include "metrics/bleu_tokenizers.h"

namespace draftsmith::evaluate {

std::string reference_language(const TaskOptions& task) {
  const size_t hyphen = task.direction.rfind('-');
  if (hyphen != std::string::npos) return task.direction.substr(hyphen + 1);
  return task.references.empty() ? "" : metrics::language_of_references(task.references.front());
}

std::unique_ptr<const metrics::Metric> task_metric(const TaskOptions& task) {
  metrics::MetricOptions options = task.metric;
  if (!options.tokenize && !task.ids) options.tokenize = metrics::default_bleu_tokenizer(reference_language(task));
  return metrics::make_metric(options);
}

}  // namespace draftsmith::evaluate
