#include "cli/data_list.h"

#include <iostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/table.h"
#include "data/datasets/datasets.h"
#include "data/text/readers.h"

namespace draftsmith::cli {
namespace {

// Returns what a data set holds, in a table's row.
std::vector<std::string> dataset_row(const data::NamedDataset& set) {
  std::vector<std::string> names;
  if (set.parallel()) {
    for (const auto& [name, direction] : set.directions) names.push_back(name);
    const int64_t lines = data::count_lines(set.directions.begin()->second.source);
    return {set.name, std::to_string(lines), "parallel text", fmt::format("{}", fmt::join(names, ", ")), "bleu"};
  }
  const std::string lines = std::to_string(data::count_lines(set.file));
  if (!set.jsonl()) return {set.name, lines, "plain text", data::document_separator(set.file), "none"};
  data::JsonlSummary summary;
  try {
    summary = data::summarize_jsonl(set.file);
  } catch (const UserError& error) {
    return {set.name, lines, "jsonl", "unusable: " + error.problems().front().what, ""};
  }
  if (summary.source.empty()) return {set.name, lines, "jsonl", "fields unknown: name them with `jsonl`", ""};
  std::string fields = summary.source;
  if (!summary.references.empty()) fields += fmt::format(" -> {}", fmt::join(summary.references, ", "));
  if (!summary.categories.empty()) fields += fmt::format(", {} categories", summary.categories.size());
  return {set.name, lines, "jsonl", fields, summary.metric};
}

}  // namespace

std::function<int()> add_data_list(CLI::App& app) {
  app.footer(
      "Each name is a `dataset` of a suite's task, of a recipe's corpus and of `draftsmith data prepare`.\n"
      "The data folder is ../shared/data; the environment variable DRAFTSMITH_DATA names another one.\n"
      "Example:\n  draftsmith data list");
  return [] {
    std::vector<data::NamedDataset> sets = data::datasets_in(data::data_folder());
    const std::vector<data::NamedDataset> downloaded = data::sacrebleu_datasets(data::sacrebleu_folder());
    sets.insert(sets.end(), downloaded.begin(), downloaded.end());
    if (sets.empty()) {
      throw UserError({.where = "data folder " + data::data_folder().string(),
                       .what = "holds no data set, and sacreBLEU has downloaded none",
                       .expected = "text in several languages (x.de, x.en), *.jsonl, *.txt, *.raw or *.tokens",
                       .found = "none",
                       .hint = "set DRAFTSMITH_DATA to the folder with your data"});
    }
    Table table({{"data set", Align::kLeft},
                 {"lines"},
                 {"kind", Align::kLeft},
                 {"directions or fields", Align::kLeft},
                 {"metric", Align::kLeft}});
    for (const data::NamedDataset& set : sets) table.add_row(dataset_row(set));
    std::cout << table.text() << std::flush;
    return 0;
  };
}

}  // namespace draftsmith::cli
