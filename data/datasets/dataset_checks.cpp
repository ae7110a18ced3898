#include "data/datasets/dataset_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "data/text/readers.h"

namespace draftsmith::data {

void refuse_direction(const std::string& direction, const NamedDataset& set) {
  if (direction.empty()) return;
  throw UserError({.where = "data set " + set.name,
                   .what = "only parallel text has a direction",
                   .expected = "no `direction`",
                   .found = direction});
}

void require_equal_lines(const NamedDataset& set, const Direction& direction) {
  const int64_t lines = count_lines(direction.source);
  for (const std::filesystem::path& file : direction.references) {
    const int64_t references = count_lines(file);
    if (references == lines) continue;
    throw UserError({.where = "data set " + set.name,
                     .what = fmt::format("{} references than sources", references < lines ? "fewer" : "more"),
                     .expected = fmt::format("{} lines, as in {}", lines, direction.source.string()),
                     .found = fmt::format("{} lines in {}", references, file.string()),
                     .hint = "the files do not belong together, or one is incomplete"});
  }
}

JsonlSummary known_summary(const NamedDataset& set) {
  JsonlSummary summary = summarize_jsonl(set.file);
  if (summary.source.empty()) {
    throw UserError({.where = "data set " + set.name,
                     .what = "no convention says which fields are source and references",
                     .expected = "fields such as turns, prompt, text, source and target, dialogue and summary",
                     .found = fmt::format("fields {}", fmt::join(summary.fields, ", ")),
                     .hint = fmt::format("name the file with `jsonl` ({}) and its fields", set.file.string())});
  }
  if (summary.placeholders > 0) {
    throw UserError({.where = set.file.string(),
                     .what = fmt::format("{} of {} prompts are placeholders", summary.placeholders, summary.lines),
                     .expected = "SPEED-Bench with all of its prompts",
                     .found = "\"FULL BENCHMARK DATA SHOULD BE FETCHED ...\"",
                     .hint = "prepare the data with NVIDIA's own program (specdec_bench), which fetches them"});
  }
  return summary;
}

}  // namespace draftsmith::data
