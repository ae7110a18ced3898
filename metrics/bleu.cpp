#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/registry.h"
#include "base/utf8.h"
#include "metrics/metric.h"

namespace draftsmith::metrics {
namespace {

// ---- Tokenizers
// As in sacreBLEU 2.6: none (white space), char, 13a (mteval-v13a) and zh.

using Pieces = std::vector<std::string>;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_point(char c) {
  return c == '.' || c == ',';
}

bool stands_alone(char c) {
  const bool punctuation =
      (c >= ' ' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  return punctuation && c != '\'' && c != '-' && !is_point(c);
}

// Sets characters apart by blanks, from left to right without overlap: of each pair that matches the second one or,
// unless `second`, the first.
template <typename Matches>
std::string isolate_in_pairs(const std::string& text, bool second, Matches matches) {
  std::string result;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool pair = at + 1 < text.size() && matches(text[at], text[at + 1]);
    if (pair && second) result.append({text[at], ' ', text[at + 1], ' '});
    if (pair && !second) result.append({' ', text[at], ' ', text[at + 1]});
    if (!pair) result.push_back(text[at]);
    at += pair ? 1 : 0;
  }
  return result;
}

// The rules of NIST's mteval script for Western punctuation, which 13a and zh share, act on ASCII only: bytes suffice.

// Replaces the entities &quot; &amp; &lt; &gt;, in this order.
void unescape_entities(std::string& text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kEntities{
      {{"&quot;", "\""}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}}};
  for (const auto& [entity, character] : kEntities) text = replace_all(text, entity, character);
}

// Returns the text with blanks around blanks and ASCII punctuation marks but apostrophe, comma, hyphen, full stop.
std::string isolate_punctuation(const std::string& text) {
  std::string result;
  for (const char c : text) result += stands_alone(c) ? std::string{' ', c, ' '} : std::string(1, c);
  return result;
}

// Returns the text with commas and full stops set apart unless digits are on both sides, and hyphens behind digits. At
// the text's ends, the rule for the missing side does not apply.
std::string isolate_points_and_dashes(std::string text) {
  text = isolate_in_pairs(text, true, [](char first, char second) { return !is_digit(first) && is_point(second); });
  text = isolate_in_pairs(text, false, [](char first, char second) { return is_point(first) && !is_digit(second); });
  return isolate_in_pairs(text, true, [](char first, char second) { return is_digit(first) && second == '-'; });
}

Pieces characters_of(std::string_view text) {
  Pieces characters;
  for (const char32_t c : code_points(text)) {
    if (!is_space(c)) append_utf8(c, characters.emplace_back());
  }
  return characters;
}

Pieces split_13a(std::string_view segment) {
  std::string text = replace_all(replace_all(replace_all(segment, "<skipped>", ""), "-\n", ""), "\n", " ");
  unescape_entities(text);
  return words_of(isolate_points_and_dashes(isolate_punctuation(" " + text + " ")));
}

// sacreBLEU's ranges. Its two ranges beyond U+FFFF are escapes of four digits and one character more, so that they
// compare as U+2001 to U+2A6D and U+2F81 to U+2FA1: general punctuation and symbols are split, extension B is not.
bool is_chinese(char32_t c) {
  static constexpr std::array<CodePointRange, 22> kRanges{
      {{0x3400, 0x4DB5}, {0x4E00, 0x9FA5}, {0x9FA6, 0x9FBB}, {0xF900, 0xFA2D}, {0xFA30, 0xFA6A}, {0xFA70, 0xFAD9},
       {0x2001, 0x2A6D}, {0x2F81, 0x2FA1}, {0xFF00, 0xFFEF}, {0x2E80, 0x2EFF}, {0x3000, 0x303F}, {0x31C0, 0x31EF},
       {0x2F00, 0x2FDF}, {0x2FF0, 0x2FFF}, {0x3100, 0x312F}, {0x31A0, 0x31BF}, {0xFE10, 0xFE1F}, {0xFE30, 0xFE4F},
       {0x2600, 0x26FF}, {0x2700, 0x27BF}, {0x3200, 0x32FF}, {0x3300, 0x33FF}}};
  return std::any_of(kRanges.begin(), kRanges.end(), [c](auto range) { return range.first <= c && c <= range.last; });
}

// Chinese characters and East Asian punctuation are tokens; the rules of mteval split the rest.
Pieces split_chinese(std::string_view segment) {
  std::string text;
  for (const char32_t c : code_points(stripped(segment))) {
    const bool chinese = is_chinese(c);
    if (chinese) text.push_back(' ');
    append_utf8(c, text);
    if (chinese) text.push_back(' ');
  }
  return words_of(isolate_points_and_dashes(isolate_punctuation(text)));
}

using Split = Pieces (*)(std::string_view);

const Registry<NamedValue<Split>>& tokenizers() {
  static const Registry<NamedValue<Split>> kTokenizers(
      "BLEU tokenizer", {{"13a", split_13a}, {"none", words_of}, {"char", characters_of}, {"zh", split_chinese}});
  return kTokenizers;
}

// Returns the tokens of one segment. sacreBLEU removes trailing white space before all else.
Pieces tokens_of(std::string_view text, Split split) {
  return split(right_stripped(text));
}

// ---- Statistics and scores

constexpr size_t kBleuOrder = 4;

using NgramsByOrder = std::array<std::vector<Ngram>, kBleuOrder>;

NgramsByOrder ngrams_of(const std::vector<uint32_t>& words) {
  NgramsByOrder result;
  for (size_t order = 1; order <= kBleuOrder; ++order) result[order - 1] = sorted_ngrams(words, order);
  return result;
}

// Counts matches of the hypothesis's n-grams, each clipped to its largest count in any one reference.
int64_t clipped_matches(const std::vector<Ngram>& hypothesis, const std::vector<NgramsByOrder>& references,
                        size_t order) {
  int64_t matches = 0;
  for (auto first = hypothesis.begin(); first != hypothesis.end();) {
    const auto last = std::upper_bound(first, hypothesis.end(), *first);
    int64_t allowed = 0;
    for (const auto& reference : references) {
      allowed = std::max<int64_t>(allowed, std::ssize(std::ranges::equal_range(reference[order], *first)));
    }
    matches += std::min<int64_t>(last - first, allowed);
    first = last;
  }
  return matches;
}

// Returns the reference length nearest to the hypothesis's length, the shorter one of a tie.
int64_t closest_length(int64_t hypothesis, const std::vector<int64_t>& references) {
  int64_t closest = references.front();
  for (const int64_t length : references) {
    const int64_t distance = std::abs(length - hypothesis);
    const int64_t best = std::abs(closest - hypothesis);
    if (distance < best || (distance == best && length < closest)) closest = length;
  }
  return closest;
}

void add_line_statistics(const std::string& hypothesis, const std::vector<std::string>& references, Split split,
                         std::vector<double>& values) {
  WordIds ids;
  const auto words = ids.ids(tokens_of(hypothesis, split));
  std::vector<NgramsByOrder> reference_ngrams;
  std::vector<int64_t> lengths;
  for (const auto& reference : references) {
    const auto reference_words = ids.ids(tokens_of(reference, split));
    lengths.push_back(static_cast<int64_t>(reference_words.size()));
    reference_ngrams.push_back(ngrams_of(reference_words));
  }
  const auto length = static_cast<int64_t>(words.size());
  values.push_back(static_cast<double>(length));
  values.push_back(static_cast<double>(closest_length(length, lengths)));
  const auto ngrams = ngrams_of(words);
  for (size_t order = 0; order < kBleuOrder; ++order) {
    values.push_back(static_cast<double>(clipped_matches(ngrams[order], reference_ngrams, order)));
  }
  for (size_t order = 0; order < kBleuOrder; ++order) values.push_back(static_cast<double>(ngrams[order].size()));
}

struct BleuScore {
  double score = 0;  // 0..100
  double brevity_penalty = 0;
  std::array<double, kBleuOrder> precisions{};  // 0..100, smoothed
  std::array<int64_t, kBleuOrder> correct{};
  std::array<int64_t, kBleuOrder> total{};
  int64_t hypothesis_length = 0;  // tokens
  int64_t reference_length = 0;
};

BleuScore bleu_from_sums(std::span<const double> sums) {
  BleuScore result;
  result.hypothesis_length = static_cast<int64_t>(sums[0]);
  result.reference_length = static_cast<int64_t>(sums[1]);
  bool any = false;
  for (size_t order = 0; order < kBleuOrder; ++order) {
    result.correct[order] = static_cast<int64_t>(sums[2 + order]);
    result.total[order] = static_cast<int64_t>(sums[2 + kBleuOrder + order]);
    any = any || result.correct[order] > 0;
  }
  const double hypothesis_length = sums[0];
  const double reference_length = sums[1];
  result.brevity_penalty = 1;
  if (hypothesis_length < reference_length) {
    result.brevity_penalty = hypothesis_length > 0 ? std::exp(1 - reference_length / hypothesis_length) : 0;
  }
  if (!any) return result;

  double halvings = 1;  // exponential smoothing: the k-th order without a match counts as 2^-k matches
  double log_sum = 0;
  for (size_t order = 0; order < kBleuOrder; ++order) {
    const auto correct = static_cast<double>(result.correct[order]);
    const auto total = static_cast<double>(result.total[order]);
    if (total == 0) return result;  // no n-gram of this order in the whole corpus: effective order is off, so BLEU is 0
    if (correct == 0) halvings *= 2;
    result.precisions[order] = correct == 0 ? 100 / (halvings * total) : 100 * correct / total;
    log_sum += std::log(result.precisions[order]);
  }
  result.score = result.brevity_penalty * std::exp(log_sum / static_cast<double>(kBleuOrder));
  return result;
}

class Bleu : public Metric {
 public:
  explicit Bleu(const MetricOptions& options)
      : tokenizer_(options.tokenize.value_or("13a")), split_(tokenizers().at(tokenizer_).value) {}

  std::string name() const override { return "bleu"; }
  std::vector<std::string> scores() const override { return {"bleu"}; }

  // Hypothesis length, closest reference length, correct 1..4-grams, total 1..4-grams.
  LineStatistics statistics(const Segments& segments) const override {
    if (segments.hypotheses.size() != segments.references.size()) {
      throw std::logic_error("bleu: numbers of lines differ");
    }
    LineStatistics statistics;
    statistics.width = 2 + 2 * static_cast<int64_t>(kBleuOrder);
    for (size_t line = 0; line < segments.hypotheses.size(); ++line) {
      if (segments.references[line].empty()) throw std::logic_error("bleu: a line without a reference");
      add_line_statistics(segments.hypotheses[line], segments.references[line], split_, statistics.values);
    }
    return statistics;
  }

  double score(std::span<const double> sums, size_t /*which*/) const override { return bleu_from_sums(sums).score; }

  std::string signature(const References& references) const override {
    return fmt::format("nrefs:{}|case:mixed|eff:no|tok:{}|smooth:exp|version:{}", reference_count(references),
                       tokenizer_, kMetricsVersion);
  }

  // Returns "BLEU|... = 27.10 58.3/33.1/20.9/13.7 (BP = 1.000 ratio = 1.010 hyp_len = 12 ref_len = 11)".
  std::string text(std::span<const double> sums, const std::string& signature) const override {
    const BleuScore score = bleu_from_sums(sums);
    const double ratio = score.reference_length == 0 ? 0 : sums[0] / sums[1];
    return fmt::format(
        "BLEU|{} = {:.2f} {:.1f}/{:.1f}/{:.1f}/{:.1f} (BP = {:.3f} ratio = {:.3f} hyp_len = {} ref_len = {})\n",
        signature, score.score, score.precisions[0], score.precisions[1], score.precisions[2], score.precisions[3],
        score.brevity_penalty, ratio, score.hypothesis_length, score.reference_length);
  }

  nlohmann::ordered_json details(std::span<const double> sums) const override {
    const BleuScore bleu = bleu_from_sums(sums);
    return {{"precisions", bleu.precisions},
            {"correct", bleu.correct},
            {"total", bleu.total},
            {"brevity_penalty", bleu.brevity_penalty},
            {"hypothesis_length", bleu.hypothesis_length},
            {"reference_length", bleu.reference_length}};
  }

 private:
  std::string tokenizer_;
  Split split_;
};

}  // namespace

std::unique_ptr<const Metric> make_bleu(const MetricOptions& options) {
  return std::make_unique<Bleu>(options);
}

std::vector<std::string> bleu_tokenizer_names() {
  return tokenizers().names();
}

std::vector<std::string> bleu_tokens(std::string_view text, const std::string& tokenizer) {
  return tokens_of(text, tokenizers().at(tokenizer).value);
}

std::string reference_count(const References& references) {
  if (references.empty()) return "0";
  const size_t count = references.front().size();
  const bool same =
      std::all_of(references.begin(), references.end(), [&](const auto& line) { return line.size() == count; });
  return same ? std::to_string(count) : "var";
}

std::string language_of_references(const std::filesystem::path& file) {
  std::string ending = file.extension().string();
  if (ending.starts_with(".ref")) ending = file.stem().extension().string();
  const size_t hyphen = ending.rfind('-');
  return ending.empty() ? "" : ending.substr(hyphen == std::string::npos ? 1 : hyphen + 1);
}

std::string default_bleu_tokenizer(const std::string& language) {
  if (language == "zh") return "zh";
  return language == "ja" ? "char" : "13a";
}

}  // namespace draftsmith::metrics
