#include "metrics/registry.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace draftsmith::metrics {
namespace {

using Made = std::unique_ptr<const Metric>;

struct Kind {
  std::string name;
  Made (*make)(const MetricOptions&);
};

template <class... Metrics>
std::vector<Kind> kinds(const OptionsOf<Metrics...>&) {
  return {{Metrics::kName, [](const MetricOptions& options) -> Made { return std::make_unique<Metrics>(options); }}...};
}

}  // namespace

std::unique_ptr<const Metric> make_metric(const MetricOptions& options) {
  for (const Kind& kind : kinds(options)) {
    if (kind.name == options.name) return kind.make(options);
  }
  throw UserError({.where = "metric",
                   .what = "unknown metric",
                   .expected = fmt::format("one of {}", fmt::join(metric_names(), ", ")),
                   .found = options.name,
                   .hint = ""});
}

std::unique_ptr<const Metric> make_metric(const std::string& name) {
  MetricOptions options;
  options.name = name;
  return make_metric(options);
}

std::vector<std::string> metric_names() {
  std::vector<std::string> names;
  for (Kind& kind : kinds(MetricOptions())) names.push_back(std::move(kind.name));
  return names;
}

}  // namespace draftsmith::metrics
