// Corpus BLEU (Papineni et al. 2002) as sacreBLEU 2.6 computes it: n-grams up to 4, exponential smoothing, effective
// order off, closest reference length, case kept. metrics/bleu_tokenizers.h lists the tokenizers.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "metrics/bleu_tokenizers.h"
#include "metrics/metric.h"
#include "metrics/resampling.h"
#include "metrics/text.h"

namespace draftsmith::metrics {

inline constexpr size_t kBleuOrder = 4;

struct BleuScore {
  double score = 0;  // 0..100
  double brevity_penalty = 0;
  std::array<double, kBleuOrder> precisions{};  // 0..100, smoothed
  std::array<int64_t, kBleuOrder> correct{};
  std::array<int64_t, kBleuOrder> total{};
  int64_t hypothesis_length = 0;  // tokens
  int64_t reference_length = 0;
};

// Returns the statistics of each line: hypothesis length, closest reference length, correct 1..4-grams,
// total 1..4-grams. Throws std::logic_error if the numbers of lines differ or a line has no reference.
LineStatistics bleu_statistics(const std::vector<std::string>& hypotheses, const References& references,
                               const BleuTokenizer& tokenizer);

// Returns the score of summed statistics.
BleuScore bleu_from_sums(std::span<const double> sums);

// Return the score of all lines together; without a tokenizer, by 13a.
BleuScore corpus_bleu(const std::vector<std::string>& hypotheses, const References& references,
                      const BleuTokenizer& tokenizer);
BleuScore corpus_bleu(const std::vector<std::string>& hypotheses, const References& references);

// Returns sacreBLEU's signature with our version: "nrefs:1|case:mixed|...".
std::string bleu_signature(const References& references, const BleuTokenizer& tokenizer);

// Returns "27.10 58.3/33.1/20.9/13.7 (BP = 1.000 ratio = 1.010 hyp_len = 12 ref_len = 11)".
std::string to_string(const BleuScore& score);

// Returns the number of references per line for signatures: "1", or "var" if it varies.
std::string reference_count(const References& references);

struct BleuOptions {
  std::optional<std::string> tokenize;  // absent: that of the references' language, by default_bleu_tokenizer()
  static Fields<BleuOptions> fields();
};

// BLEU as a metric of tasks.
class Bleu : public Metric {
 public:
  using Options = BleuOptions;
  static constexpr const char* kName = "bleu";
  // Without a tokenizer, scores by 13a. Errors: UserError, as make_bleu_tokenizer().
  explicit Bleu(const Options& options);

  std::string name() const override { return kName; }
  std::vector<std::string> scores() const override;
  LineStatistics statistics(const std::vector<std::string>& hypotheses, const References& references) const override;
  double score(std::span<const double> sums, size_t which) const override;
  std::string signature(const References& references) const override;
  std::string text(std::span<const double> sums, const std::string& signature) const override;
  nlohmann::ordered_json details(std::span<const double> sums) const override;

 private:
  std::unique_ptr<const BleuTokenizer> tokenizer_;
};

// The version in signatures, which differs from any version of sacreBLEU.
inline constexpr std::string_view kMetricsVersion = "draftsmith-0.1.0";

}  // namespace draftsmith::metrics
