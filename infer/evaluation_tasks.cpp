#include "infer/evaluation_tasks.h"

#include <algorithm>

#include "data/readers.h"
#include "infer/metrics/rouge.h"

namespace draftsmith::infer {
namespace {

void keep_first(std::vector<std::string>& lines, int64_t limit) {
  if (limit > 0 && lines.size() > static_cast<size_t>(limit)) lines.resize(static_cast<size_t>(limit));
}

TaskData from_text(const EvaluationTask& task) {
  TaskData data;
  data.sources = data::read_lines(task.source);
  std::vector<std::vector<std::string>> streams;
  for (const auto& file : task.references) {
    streams.push_back(data::read_lines(file));
    if (streams.back().size() == data.sources.size()) continue;
    throw UserError({.where = file.string(),
                     .what = "references and sources differ in their number of lines",
                     .expected = std::to_string(data.sources.size()) + " lines, as in " + task.source.string(),
                     .found = std::to_string(streams.back().size()) + " lines",
                     .hint = ""});
  }
  keep_first(data.sources, task.limit);
  for (auto& stream : streams) keep_first(stream, task.limit);
  data.references = references_from_streams(streams);
  return data;
}

std::vector<data::Example> read_jsonl(const EvaluationTask& task, const std::string& separator) {
  const data::JsonFields fields{task.source_field, task.reference_fields, separator};
  const auto stream = data::open_jsonl(task.jsonl, fields, {.empty = "keep"});
  return data::read_all(*stream);
}

TaskData from_jsonl(const EvaluationTask& task) {
  TaskData data;
  // Lists are joined by blanks in sources, as models read them, and by newlines in references, as Lsum counts them.
  for (auto& example : read_jsonl(task, " ")) data.sources.push_back(std::move(example.source));
  for (auto& example : read_jsonl(task, "\n")) data.references.push_back(std::move(example.targets));
  keep_first(data.sources, task.limit);
  data.references.resize(data.sources.size());
  return data;
}

}  // namespace

TaskData load_task(const EvaluationTask& task) {
  TaskData data = task.jsonl.empty() ? from_text(task) : from_jsonl(task);
  if (data.sources.empty()) {
    throw UserError({.where = task.jsonl.empty() ? task.source.string() : task.jsonl.string(),
                     .what = "the task has no line",
                     .expected = "at least one line",
                     .found = "an empty file",
                     .hint = ""});
  }
  for (auto& source : data.sources) source.insert(0, task.prefix);
  for (auto& line : data.references) {
    for (auto& reference : line) {
      if (task.metric.name == "rouge") reference = unescape_sentences(reference);
    }
  }
  return data;
}

std::string hypothesis_line(const std::string& text, const MetricOptions& metric) {
  if (metric.name == "rouge") return escape_sentences(text);
  std::string line = text;
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

}  // namespace draftsmith::infer
