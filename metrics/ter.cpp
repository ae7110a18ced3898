#include "metrics/ter.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>

#include "metrics/bleu.h"
#include "metrics/ngrams.h"
#include "metrics/ter_edits.h"

namespace draftsmith::metrics {
namespace {

const char* yes_or_no(bool value) {
  return value ? "yes" : "no";
}

}  // namespace

LineStatistics ter_statistics(const std::vector<std::string>& hypotheses, const References& references,
                              const TerOptions& options) {
  if (hypotheses.size() != references.size()) throw std::logic_error("ter: numbers of lines differ");
  LineStatistics result;
  result.width = 2;
  for (size_t line = 0; line < hypotheses.size(); ++line) {
    if (references[line].empty()) throw std::logic_error("ter: a line without a reference");
    WordIds ids;
    const auto hypothesis = ids.ids(ter_tokens(hypotheses[line], options));
    int64_t fewest = std::numeric_limits<int64_t>::max();
    int64_t words = 0;
    for (const std::string& text : references[line]) {
      const auto reference = ids.ids(ter_tokens(text, options));
      fewest = std::min(fewest, ter_edits(hypothesis, reference));
      words += std::ssize(reference);
    }
    result.values.push_back(static_cast<double>(fewest));
    result.values.push_back(static_cast<double>(words) / static_cast<double>(references[line].size()));
  }
  return result;
}

double ter_from_sums(std::span<const double> sums) {
  if (sums[1] > 0) return 100 * (sums[0] / sums[1]);
  return sums[0] > 0 ? 100 : 0;
}

std::string ter_signature(const References& references, const TerOptions& options) {
  return fmt::format("nrefs:{}|case:{}|tok:tercom|norm:{}|punct:{}|asian:{}|version:{}", reference_count(references),
                     options.case_sensitive ? "mixed" : "lc", yes_or_no(options.normalized),
                     yes_or_no(!options.no_punct), yes_or_no(options.asian_support), kMetricsVersion);
}

std::vector<std::string> Ter::scores() const {
  return {kName};
}

LineStatistics Ter::statistics(const std::vector<std::string>& hypotheses, const References& references) const {
  return ter_statistics(hypotheses, references, options_);
}

double Ter::score(std::span<const double> sums, size_t /*which*/) const {
  return ter_from_sums(sums);
}

std::string Ter::signature(const References& references) const {
  return ter_signature(references, options_);
}

std::string Ter::text(std::span<const double> sums, const std::string& signature) const {
  return fmt::format("TER|{} = {:.2f}\n", signature, ter_from_sums(sums));
}

nlohmann::ordered_json Ter::details(std::span<const double> sums) const {
  return {{"edits", sums[0]}, {"reference_length", sums[1]}};
}

}  // namespace draftsmith::metrics
