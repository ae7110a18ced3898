#include "evaluate/suite/suite_options.h"

#include <algorithm>
#include <functional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace draftsmith::evaluate {
namespace {

void check_thresholds(const std::vector<double>& thresholds, const std::string& where, Problems& problems) {
  if (std::set<double>(thresholds.begin(), thresholds.end()).size() == thresholds.size()) return;
  problems.add({where, "a threshold is given twice", "each threshold once",
                fmt::format("[{}]", fmt::join(thresholds, ", ")), ""});
}

}  // namespace

Fields<EngagementTable> EngagementTable::fields() {
  using E = EngagementTable;
  return Fields<E>("engagement of the large model")
      .add("name", &E::name, "Name in files and results, where there are several.")
      .add("task", &E::task, "Task that is decoded and scored; empty: the first.")
      .add("drafter", &E::drafter, Required{}, "Small model whose tokens the suite's model replaces.")
      .add("oracle", &E::oracle, Range{0, 1},
           "Thresholds of the oracle: the large model decides where it gives the small one's token a lower "
           "probability; 0: never.")
      .add("fallback", &E::fallback, Range{0, 1},
           "Thresholds of fallback: the large model decides where the small one's largest probability is lower.")
      .add("lines", &E::lines, Range{0}, Unit{"lines"}, "First lines of the task; 0: all.")
      .check([](const E& table, const std::string& where, Problems& problems) {
        const std::string dot = where.empty() ? "" : where + ".";
        check_thresholds(table.oracle, dot + "oracle", problems);
        check_thresholds(table.fallback, dot + "fallback", problems);
        if (!table.oracle.empty() || !table.fallback.empty()) return;
        problems.add({where, "there is nothing to measure", "thresholds of oracle or fallback", "none", ""});
      });
}

namespace {

std::vector<std::string> decoding_names() {
  std::vector<std::string> names;
  for (const infer::MatchDecoding& decoding : infer::paper_decodings()) names.push_back(decoding.name);
  return names;
}

void check_rising(const std::vector<int64_t>& layers, const std::string& where, Problems& problems) {
  if (std::adjacent_find(layers.begin(), layers.end(), std::greater_equal<>()) == layers.end()) return;
  problems.add({where, "layers are given twice or out of order", "rising layers",
                fmt::format("[{}]", fmt::join(layers, ", ")), ""});
}

// Requires at least one value, and each value once.
template <class T>
void check_once(const std::vector<T>& values, const std::string& where, Problems& problems) {
  if (!values.empty() && std::set<T>(values.begin(), values.end()).size() == values.size()) return;
  problems.add({where, values.empty() ? "there is nothing to count" : "a value is given twice",
                "at least one value, each once", fmt::format("[{}]", fmt::join(values, ", ")),
                values.empty() ? "leave it out for the default" : ""});
}

}  // namespace

Fields<MatchRateTable> MatchRateTable::fields() {
  using E = MatchRateTable;
  return Fields<E>("match rates of early predictions")
      .add("name", &E::name, "Name in files and results, where there are several.")
      .add("task", &E::task, "Task whose prompts are decoded; empty: the first.")
      .add("model", &E::model, "Model that decodes and predicts: \"target\", or a drafter's name.")
      .add("exits", &E::exits, "Directory of its exits; empty: its own, if it has any.")
      .add("layers", &E::layers, Range{1}, Unit{"layers"}, "Layers that predict; empty: all but the last.")
      .add("candidates", &E::candidates, Range{1}, Unit{"tokens"}, "Most likely tokens k that count as predicted.")
      .add("decoding", &E::decoding, Choices(decoding_names()),
           "How outputs are made: greedy decoding, sampling among 3 tokens or from a mass of 0.95.")
      .add("positions", &E::positions, Range{1}, Unit{"tokens"}, "New tokens in a bin of positions.")
      .add("bins", &E::bins, Range{1, 8}, "Bins; what comes after them is one more.")
      .add("prompts", &E::prompts, Range{1}, Unit{"lines"}, "First lines of the task.")
      .check([](const E& rates, const std::string& where, Problems& problems) {
        const std::string dot = where.empty() ? "" : where + ".";
        check_rising(rates.layers, dot + "layers", problems);
        check_once(rates.candidates, dot + "candidates", problems);
        check_once(rates.decoding, dot + "decoding", problems);
      });
}

infer::MatchRateOptions MatchRateTable::options() const {
  infer::MatchRateOptions options;
  options.layers = layers;
  options.candidates = candidates;
  options.bin = positions;
  options.bins = bins;
  std::erase_if(options.decodings, [&](const infer::MatchDecoding& one) {
    return std::find(decoding.begin(), decoding.end(), one.name) == decoding.end();
  });
  return options;
}

}  // namespace draftsmith::evaluate
