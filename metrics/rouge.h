// ROUGE-1, -2, -L and -Lsum (Lin 2004) as Google's rouge_score 0.1.2 computes them: lower case, tokens [a-z0-9]+,
// Porter stemming optional (tokens longer than three), F1, union LCS for Lsum with sentences separated by newlines.
// With several references, each type uses the reference with the highest F1 on the line (rouge_score's score_multi).
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "metrics/metric.h"
#include "metrics/resampling.h"
#include "metrics/text.h"

namespace draftsmith::metrics {

// ---- Stemming
// Porter's stemmer (1980) with the extensions that NLTK's PorterStemmer applies by default: ROUGE as rouge_score
// computes it is defined through exactly this variant (libstemmer's "porter" differs on about 1.6 % of word types).

// Returns the stem of a lower-case ASCII word. Digits count as consonants. Words of one or two letters do not change.
std::string porter_stem(std::string_view word);

// ---- ROUGE

struct RougeOptions {
  bool stemmer = false;
  static Fields<RougeOptions> fields();
};

struct RougeValue {
  double precision = 0;  // all in 0..1
  double recall = 0;
  double f1 = 0;
};

inline constexpr size_t kRougeTypes = 4;
inline constexpr std::array<const char*, kRougeTypes> kRougeNames{"rouge1", "rouge2", "rougeL", "rougeLsum"};

// One value for each type, in the order of kRougeNames.
using RougeScore = std::array<RougeValue, kRougeTypes>;

std::vector<std::string> rouge_tokens(std::string_view text, const RougeOptions& options);

// Returns the scores of one line against its references (at least one).
RougeScore rouge_line(std::string_view hypothesis, const std::vector<std::string>& references,
                      const RougeOptions& options = {});

// Returns precision, recall and F1 of each type, then 1: [lines,13]. Sums divided by the last sum are means over lines.
LineStatistics rouge_statistics(const std::vector<std::string>& hypotheses, const References& references,
                                const RougeOptions& options = {});

// Returns the means over lines.
RougeScore rouge_from_sums(std::span<const double> sums);

// Returns the text of a file's line, with newlines for a literal \n or <n> between sentences.
std::string unescape_sentences(std::string_view line);

// Returns the line of a file for a text: newlines become a literal \n, carriage returns are dropped.
std::string escape_sentences(std::string_view text);

// ROUGE as a metric of tasks; the leading score is rougeL's F1.
class Rouge : public Metric {
 public:
  using Options = RougeOptions;
  static constexpr const char* kName = "rouge";
  explicit Rouge(const Options& options) : options_(options) {}

  std::string name() const override { return kName; }
  std::vector<std::string> scores() const override;
  double point() const override { return 0.01; }
  LineStatistics statistics(const std::vector<std::string>& hypotheses, const References& references) const override;
  double score(std::span<const double> sums, size_t which) const override;
  std::string signature(const References& references) const override;
  std::string text(std::span<const double> sums, const std::string& signature) const override;
  nlohmann::ordered_json details(std::span<const double> sums) const override;
  // Sentences are separated by newlines in texts, by a literal \n in lines.
  std::string line_of(const std::string& text) const override { return escape_sentences(text); }
  std::string text_of(const std::string& line) const override { return unescape_sentences(line); }

 private:
  RougeOptions options_;
};

}  // namespace draftsmith::metrics
