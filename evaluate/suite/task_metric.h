// How a task's hypotheses are scored: its metric, with what follows from the references' language.
#pragma once

#include <memory>
#include <string>

#include "evaluate/suite/suite_options.h"
#include "metrics/metric.h"

namespace draftsmith::evaluate {

// Returns the language of the task's references by `direction`, else by the file's ending; "": unknown.
std::string reference_language(const TaskOptions& task);

// Returns the task's metric. BLEU without a tokenizer takes that of the references' language, and 13a for ids.
std::unique_ptr<const metrics::Metric> task_metric(const TaskOptions& task);

}  // namespace draftsmith::evaluate
