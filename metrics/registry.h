// The metrics that tasks and `draftsmith score` can name. A new metric is a class in files of its own, with its
// options, and a word in `MetricOptions` below.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/options.h"
#include "metrics/bleu.h"
#include "metrics/chrf.h"
#include "metrics/rouge.h"
#include "metrics/ter.h"
#include "metrics/unscored.h"

namespace draftsmith::metrics {

// The name of a metric and the options of all metrics; each metric reads its own.
template <class... Metrics>
struct OptionsOf : Metrics::Options... {
  std::string name = Bleu::kName;

  // Returns whether the metric scores anything.
  bool scored() const { return name != Unscored::kName; }

  static Fields<OptionsOf> fields() {
    Fields<OptionsOf> fields("metric options");
    fields.add("name", &OptionsOf::name, Choices{Metrics::kName...},
               "Metric of the task; none: the task has no references and measures speed only.");
    (fields.template inherit<typename Metrics::Options>(), ...);
    return fields;
  }
};
using MetricOptions = OptionsOf<Bleu, Rouge, Chrf, Ter, Unscored>;

// Returns the metric that `options` name. Errors: UserError for an unknown name or tokenizer.
std::unique_ptr<const Metric> make_metric(const MetricOptions& options);

// Returns the metric of that name with its default options. Errors: UserError for an unknown name.
std::unique_ptr<const Metric> make_metric(const std::string& name);

// Returns the names of all metrics.
std::vector<std::string> metric_names();

}  // namespace draftsmith::metrics
