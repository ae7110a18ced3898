// The metric "none" of tasks without references: only speed is measured.
#pragma once

#include <string>
#include <vector>

#include "base/options.h"
#include "metrics/metric.h"

namespace draftsmith::metrics {

struct UnscoredOptions {
  static Fields<UnscoredOptions> fields() { return Fields<UnscoredOptions>("no metric"); }
};

class Unscored : public Metric {
 public:
  using Options = UnscoredOptions;
  static constexpr const char* kName = "none";
  explicit Unscored(const Options& /*options*/) {}

  std::string name() const override { return kName; }
  std::vector<std::string> scores() const override { return {}; }
  LineStatistics statistics(const std::vector<std::string>& /*hypotheses*/,
                            const References& /*references*/) const override {
    return {};
  }
  double score(std::span<const double> /*sums*/, size_t /*which*/) const override { return 0; }
  std::string signature(const References& /*references*/) const override { return "no references: nothing is scored"; }
  std::string text(std::span<const double> /*sums*/, const std::string& signature) const override {
    return signature + "\n";
  }
};

}  // namespace draftsmith::metrics
