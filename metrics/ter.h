// Translation edit rate (Snover et al. 2006) as sacreBLEU 2.6 computes it: edits for each word of the references, in
// percent. Lower is better. With several references, the fewest edits and the mean length.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "metrics/metric.h"
#include "metrics/resampling.h"
#include "metrics/ter_tokens.h"
#include "metrics/text.h"

namespace draftsmith::metrics {

// Returns the statistics of each line: edits and the references' length, [lines,2]. Throws std::logic_error if the
// numbers of lines differ or a line has no reference.
LineStatistics ter_statistics(const std::vector<std::string>& hypotheses, const References& references,
                              const TerOptions& options = {});

// Returns the score of summed statistics, 0 or more. Texts against empty references score 100.
double ter_from_sums(std::span<const double> sums);

// Returns sacreBLEU's signature with our version.
std::string ter_signature(const References& references, const TerOptions& options);

// TER as a metric of tasks.
class Ter : public Metric {
 public:
  using Options = TerOptions;
  static constexpr const char* kName = "ter";
  explicit Ter(const Options& options) : options_(options) {}

  std::string name() const override { return kName; }
  std::vector<std::string> scores() const override;
  bool lower_is_better() const override { return true; }
  LineStatistics statistics(const std::vector<std::string>& hypotheses, const References& references) const override;
  double score(std::span<const double> sums, size_t which) const override;
  std::string signature(const References& references) const override;
  std::string text(std::span<const double> sums, const std::string& signature) const override;
  nlohmann::ordered_json details(std::span<const double> sums) const override;

 private:
  TerOptions options_;
};

}  // namespace draftsmith::metrics
