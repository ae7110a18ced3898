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

std::unique_ptr<const Metric> make_metric(const MetricOptions& options) {
  return kinds().at(options.name).make(options);
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
