#include "data/datasets/dataset_input.h"

#include "base/error.h"
#include "data/datasets/dataset_checks.h"

namespace draftsmith::data {

TextInput with_dataset(const TextInput& input) {
  if (input.dataset.empty()) return input;
  for (const std::filesystem::path* file : {&input.source, &input.target, &input.jsonl, &input.text}) {
    if (file->empty()) continue;
    throw UserError({.where = "text input",
                     .what = "`dataset` and a file both say where the text comes from",
                     .expected = "one of them",
                     .found = input.dataset + " and " + file->string()});
  }
  const NamedDataset set = find_dataset(input.dataset);
  TextInput filled = input;
  if (set.parallel()) {
    const Direction& direction = set.direction(input.direction);
    require_equal_lines(set, direction);
    filled.source = direction.source;
    filled.target = direction.references.front();
    return filled;
  }
  refuse_direction(input.direction, set);
  if (!set.jsonl()) {
    filled.text = set.file;
    if (filled.separator.empty()) filled.separator = document_separator(set.file);
    return filled;
  }
  const JsonlSummary summary = known_summary(set);
  filled.jsonl = set.file;
  if (summary.chat) {
    filled.messages = summary.source;
    return filled;
  }
  filled.source_field = summary.references.empty() ? "" : summary.source;
  filled.target_fields = summary.references.empty() ? std::vector<std::string>{summary.source} : summary.references;
  return filled;
}

}  // namespace draftsmith::data
