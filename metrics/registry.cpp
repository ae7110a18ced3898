#include "metrics/registry.h"

#include "base/registry.h"

namespace draftsmith::metrics {
namespace {

using Made = std::unique_ptr<const Metric>;

struct Kind {
  std::string name;
  Made (*make)(const MetricOptions&);
};

template <class... Metrics>
Registry<Kind> kinds_of(const OptionsOf<Metrics...>&) {
  return {
      "metric",
      {{Metrics::kName, [](const MetricOptions& options) -> Made { return std::make_unique<Metrics>(options); }}...}};
}

const Registry<Kind>& kinds() {
  static const Registry<Kind> kKinds = kinds_of(MetricOptions());
  return kKinds;
}

}  // namespace

void check_command(const std::string& name, const std::string& command, const std::string& where, Problems& problems) {
  const std::string at = where.empty() ? "command" : where + ".command";
  const bool blank = command.find_first_not_of(" \t\n") == std::string::npos;
  if (blank && (name == Command::kName || !command.empty())) {
    problems.add({at, "the metric needs a command", "a command of /bin/sh", "none",
                  "metric = { command = \"python3 score.py\" }"});
  } else if (!blank && name != Command::kName && name != MetricOptions().name) {
    problems.add({at, "only the metric command runs one", "command alone, or another metric",
                  "name = \"" + name + "\" and a command", ""});
  }
}

std::unique_ptr<const Metric> make_metric(const MetricOptions& options) {
  return kinds().at(options.kind()).make(options);
}

std::unique_ptr<const Metric> make_metric(const std::string& name) {
  MetricOptions options;
  options.name = name;
  return make_metric(options);
}

std::vector<std::string> metric_names() {
  return kinds().names();
}

}  // namespace draftsmith::metrics
