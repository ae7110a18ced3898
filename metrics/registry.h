// The metrics that tasks and `draftsmith score` can name. A new metric is a class in files of its own, with its
// options, and a word in `MetricOptions` below.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/options.h"
#include "metrics/bleu.h"
#include "metrics/chrf.h"
#include "metrics/command.h"
#include "metrics/rouge.h"
#include "metrics/unscored.h"

namespace draftsmith::metrics {

// Adds a problem if the metric's name and its command do not belong together.
void check_command(const std::string& name, const std::string& command, const std::string& where, Problems& problems);

// The name of a metric and the options of all metrics; each metric reads its own.
template <class... Metrics>
struct OptionsOf : Metrics::Options... {
  std::string name = Bleu::kName;

  // Returns the name of the metric that the options ask for: a command needs no name beside it.
  std::string kind() const { return this->command.empty() ? name : Command::kName; }
  // Returns whether the metric scores anything.
  bool scored() const { return kind() != Unscored::kName; }

  static Fields<OptionsOf> fields() {
    Fields<OptionsOf> fields("metric options");
    fields.add("name", &OptionsOf::name, Choices{Metrics::kName...},
               "Metric of the task; none: the task has no references and measures speed only.");
    (fields.template inherit<typename Metrics::Options>(), ...);
    return fields.check([](const OptionsOf& options, const std::string& where, Problems& problems) {
      check_command(options.name, options.command, where, problems);
    });
  }
};
using MetricOptions = OptionsOf<Bleu, Rouge, Chrf, Unscored, Command>;

// Returns the metric that `options` name. Errors: UserError for an unknown name or tokenizer.
std::unique_ptr<const Metric> make_metric(const MetricOptions& options);

// Returns the metric of that name with its default options. Errors: UserError for an unknown name.
std::unique_ptr<const Metric> make_metric(const std::string& name);

// Returns the names of all metrics.
std::vector<std::string> metric_names();

}  // namespace draftsmith::metrics
