// Corpus chrF and chrF++ (Popović 2015, 2017) as sacreBLEU 2.6 computes them: character n-grams up to 6 without white
// space, optionally word n-grams up to 2, F-beta with beta 2, averaged over the orders that both sides have.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/options.h"
#include "metrics/metric.h"
#include "metrics/resampling.h"
#include "metrics/text.h"

namespace draftsmith::metrics {

struct ChrfOptions {
  int64_t char_order = 6;  // 1..6
  int64_t word_order = 0;  // 0: chrF; 2: chrF++; 0..2
  int64_t beta = 2;        // weight of recall against precision
  static Fields<ChrfOptions> fields();
};

// Returns the statistics of each line: for every order the numbers of n-grams in the hypothesis, in the best reference
// of the line, and in both. Throws std::logic_error if the numbers of lines differ.
LineStatistics chrf_statistics(const std::vector<std::string>& hypotheses, const References& references,
                               const ChrfOptions& options = {});

// Returns the score of summed statistics, 0..100.
double chrf_from_sums(std::span<const double> sums, const ChrfOptions& options = {});

// Returns "chrF2" or "chrF2++".
std::string chrf_name(const ChrfOptions& options);

// Returns sacreBLEU's signature with our version.
std::string chrf_signature(const References& references, const ChrfOptions& options);

// chrF as a metric of tasks.
class Chrf : public Metric {
 public:
  using Options = ChrfOptions;
  static constexpr const char* kName = "chrf";
  explicit Chrf(const Options& options) : options_(options) {}

  std::string name() const override { return kName; }
  std::vector<std::string> scores() const override;
  LineStatistics statistics(const std::vector<std::string>& hypotheses, const References& references) const override;
  double score(std::span<const double> sums, size_t which) const override;
  std::string signature(const References& references) const override;
  std::string text(std::span<const double> sums, const std::string& signature) const override;

 private:
  ChrfOptions options_;
};

}  // namespace draftsmith::metrics
