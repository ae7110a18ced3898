#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/signals.h"
#include "base/utf8.h"
#include "metrics/metric.h"

namespace draftsmith::metrics {
namespace {

struct RougeValue {
  double precision = 0;  // all in 0..1
  double recall = 0;
  double f1 = 0;
};

constexpr std::array<const char*, 4> kRougeNames{"rouge1", "rouge2", "rougeL", "rougeLsum"};
using RougeScore = std::array<RougeValue, kRougeNames.size()>;  // in their order

using Tokens = std::vector<uint32_t>;

RougeValue value_of(double hits, double hypothesis_count, double reference_count) {
  RougeValue value;
  value.precision = hits / std::max(hypothesis_count, 1.0);
  value.recall = hits / std::max(reference_count, 1.0);
  const double sum = value.precision + value.recall;
  value.f1 = sum > 0 ? 2 * value.precision * value.recall / sum : 0;
  return value;
}

RougeValue rouge_n(const Tokens& hypothesis, const Tokens& reference, size_t order) {
  const auto a = sorted_ngrams(hypothesis, order);
  const auto b = sorted_ngrams(reference, order);
  return value_of(static_cast<double>(count_matches(a, b)), static_cast<double>(a.size()),
                  static_cast<double>(b.size()));
}

// Returns the LCS lengths of all prefixes, [reference+1,hypothesis+1] row-major.
std::vector<uint32_t> lcs_table(const Tokens& reference, const Tokens& hypothesis) {
  const size_t columns = hypothesis.size() + 1;
  std::vector<uint32_t> table((reference.size() + 1) * columns, 0);
  for (size_t i = 1; i <= reference.size(); ++i) {
    const uint32_t* above = table.data() + (i - 1) * columns;
    uint32_t* row = table.data() + i * columns;
    for (size_t j = 1; j < columns; ++j) {
      row[j] = reference[i - 1] == hypothesis[j - 1] ? above[j - 1] + 1 : std::max(above[j], row[j - 1]);
    }
  }
  return table;
}

RougeValue rouge_l(const Tokens& hypothesis, const Tokens& reference) {
  return value_of(lcs_table(reference, hypothesis).back(), static_cast<double>(hypothesis.size()),
                  static_cast<double>(reference.size()));
}

// Marks the reference positions of one LCS. Resolves ties upwards like rouge_score, since the union depends on it.
void mark_lcs(const Tokens& reference, const Tokens& hypothesis, std::vector<bool>& marked) {
  const auto table = lcs_table(reference, hypothesis);
  const size_t columns = hypothesis.size() + 1;
  size_t i = reference.size();
  size_t j = hypothesis.size();
  while (i > 0 && j > 0) {
    if (reference[i - 1] == hypothesis[j - 1]) {
      marked[--i] = true;
      --j;
    } else if (table[i * columns + j - 1] > table[(i - 1) * columns + j]) {
      --j;
    } else {
      --i;
    }
  }
}

size_t token_count(const std::vector<Tokens>& sentences) {
  size_t count = 0;
  for (const auto& sentence : sentences) count += sentence.size();
  return count;
}

std::map<uint32_t, int64_t> counts_of(const std::vector<Tokens>& sentences) {
  std::map<uint32_t, int64_t> counts;
  for (const auto& sentence : sentences) {
    for (const uint32_t token : sentence) ++counts[token];
  }
  return counts;
}

RougeValue rouge_lsum(const std::vector<Tokens>& hypothesis, const std::vector<Tokens>& reference) {
  const size_t hypothesis_count = token_count(hypothesis);
  const size_t reference_count = token_count(reference);
  if (hypothesis_count == 0 || reference_count == 0) return {};
  // A token's hits are at most its occurrences on either side.
  auto left_hypothesis = counts_of(hypothesis);
  auto left_reference = counts_of(reference);
  int64_t hits = 0;
  for (const auto& sentence : reference) {
    std::vector<bool> marked(sentence.size(), false);
    for (const auto& other : hypothesis) mark_lcs(sentence, other, marked);
    for (size_t i = 0; i < sentence.size(); ++i) {
      if (!marked[i] || left_hypothesis[sentence[i]] == 0 || left_reference[sentence[i]] == 0) continue;
      ++hits;
      --left_hypothesis[sentence[i]];
      --left_reference[sentence[i]];
    }
  }
  return value_of(static_cast<double>(hits), static_cast<double>(hypothesis_count),
                  static_cast<double>(reference_count));
}

struct Text {
  Tokens tokens;
  std::vector<Tokens> sentences;
};

std::vector<std::string> rouge_tokens(std::string_view text, bool stemmer) {
  std::vector<std::string> tokens;
  std::string token;
  const auto finish = [&] {
    if (!token.empty()) tokens.push_back(stemmer && token.size() > 3 ? porter_stem(token) : token);
    token.clear();
  };
  for (const char32_t c : code_points(text)) {
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      token.push_back(static_cast<char>(c));
    } else if (c >= 'A' && c <= 'Z') {
      token.push_back(static_cast<char>(c + ('a' - 'A')));
    } else if (c == 0x212A) {  // the Kelvin sign's lower case is k
      token.push_back('k');
    } else if (c == 0x130) {  // dotted capital I: i and a combining dot, which separates
      token.push_back('i');
      finish();
    } else {
      finish();
    }
  }
  finish();
  return tokens;
}

Text analyse(std::string_view text, bool stemmer, WordIds& ids) {
  Text result;
  while (true) {
    const size_t end = text.find('\n');
    const auto sentence = text.substr(0, end);
    if (!sentence.empty()) result.sentences.push_back(ids.ids(rouge_tokens(sentence, stemmer)));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  // A newline separates tokens, so the tokens of all sentences are the tokens of the text.
  for (const auto& sentence : result.sentences) {
    result.tokens.insert(result.tokens.end(), sentence.begin(), sentence.end());
  }
  return result;
}

RougeScore score_pair(const Text& hypothesis, const Text& reference) {
  return {rouge_n(hypothesis.tokens, reference.tokens, 1), rouge_n(hypothesis.tokens, reference.tokens, 2),
          rouge_l(hypothesis.tokens, reference.tokens), rouge_lsum(hypothesis.sentences, reference.sentences)};
}

// Returns the scores of one line against its references.
RougeScore rouge_line(std::string_view hypothesis, const std::vector<std::string>& references, bool stemmer) {
  if (references.empty()) throw std::logic_error("rouge: a line without a reference");
  WordIds ids;
  const Text text = analyse(hypothesis, stemmer, ids);
  RougeScore best = score_pair(text, analyse(references.front(), stemmer, ids));
  for (size_t r = 1; r < references.size(); ++r) {
    const RougeScore score = score_pair(text, analyse(references[r], stemmer, ids));
    for (size_t type = 0; type < kRougeNames.size(); ++type) {
      if (score[type].f1 > best[type].f1) best[type] = score[type];
    }
  }
  return best;
}

// Returns the means over lines.
RougeScore rouge_from_sums(std::span<const double> sums) {
  RougeScore score;
  const double lines = sums[3 * kRougeNames.size()];
  if (lines == 0) return score;
  for (size_t type = 0; type < kRougeNames.size(); ++type) {
    score[type] = {sums[3 * type] / lines, sums[3 * type + 1] / lines, sums[3 * type + 2] / lines};
  }
  return score;
}

class Rouge : public Metric {
 public:
  explicit Rouge(const MetricOptions& options) : stemmer_(options.stemmer) {}

  std::string name() const override { return "rouge"; }
  std::vector<std::string> scores() const override { return {"rougeL", "rouge1", "rouge2", "rougeLsum"}; }
  double point() const override { return 0.01; }

  // Precision, recall and F1 of each type, then 1: sums divided by the last sum are means over lines.
  LineStatistics statistics(const Segments& segments) const override {
    if (segments.hypotheses.size() != segments.references.size()) {
      throw std::logic_error("rouge: numbers of lines differ");
    }
    LineStatistics statistics;
    statistics.width = 3 * static_cast<int64_t>(kRougeNames.size()) + 1;
    for (size_t line = 0; line < segments.hypotheses.size(); ++line) {
      work_point();
      for (const RougeValue& value : rouge_line(segments.hypotheses[line], segments.references[line], stemmer_)) {
        statistics.values.insert(statistics.values.end(), {value.precision, value.recall, value.f1});
      }
      statistics.values.push_back(1);
    }
    return statistics;
  }

  double score(std::span<const double> sums, size_t which) const override {
    const auto* const type = std::find(kRougeNames.begin(), kRougeNames.end(), scores().at(which));
    return rouge_from_sums(sums).at(static_cast<size_t>(type - kRougeNames.begin())).f1;
  }

  std::string signature(const References& references) const override {
    return fmt::format("nrefs:{}|stemmer:{}|lines:mean|version:{}", reference_count(references),
                       stemmer_ ? "yes" : "no", kMetricsVersion);
  }

  // Of letters, rouge_score's words have those of the Latin alphabet alone.
  std::string warning(const Segments& segments) const override {
    int64_t texts = 0;
    int64_t uncounted = 0;
    const auto look = [&](const std::string& text) {
      ++texts;
      if (!stripped(text).empty() && rouge_tokens(text, false).empty()) ++uncounted;
    };
    for (const std::string& hypothesis : segments.hypotheses) look(hypothesis);
    for (const auto& references : segments.references) std::ranges::for_each(references, look);
    if (uncounted == 0) return "";
    return fmt::format("{} of {} texts have no word that ROUGE counts: it counts a-z and 0-9 alone", uncounted, texts);
  }

  std::string text(std::span<const double> sums, const std::string& signature) const override {
    std::string text = fmt::format("ROUGE|{}\n", signature);
    const auto names = scores();
    for (size_t which = 0; which < names.size(); ++which) {
      text += fmt::format("{:<10}{:.4f}\n", names[which], score(sums, which));
    }
    return text;
  }

  nlohmann::ordered_json details(std::span<const double> sums) const override {
    nlohmann::ordered_json json;
    const RougeScore rouge = rouge_from_sums(sums);
    for (size_t type = 0; type < kRougeNames.size(); ++type) {
      json[std::string(kRougeNames[type]) + "_precision"] = rouge[type].precision;
      json[std::string(kRougeNames[type]) + "_recall"] = rouge[type].recall;
    }
    return json;
  }

  // Sentences are separated by newlines in texts, by a literal \n or <n> in lines.
  std::string line_of(const std::string& text) const override {
    return replace_all(replace_all(text, "\r", ""), "\n", "\\n");
  }
  std::string text_of(const std::string& line) const override {
    return replace_all(replace_all(line, "\\n", "\n"), "<n>", "\n");
  }

 private:
  bool stemmer_;
};

}  // namespace

std::unique_ptr<const Metric> make_rouge(const MetricOptions& options) {
  return std::make_unique<Rouge>(options);
}

}  // namespace draftsmith::metrics
