#include "evaluate/suite/tasks.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/logging.h"
#include "data/chat/chat_template.h"
#include "data/text/readers.h"

namespace draftsmith::evaluate {

std::unique_ptr<const metrics::Metric> task_metric(const TaskOptions& task) {
  metrics::MetricOptions options = task.metric;
  if (!options.tokenize && !task.ids && options.name == "bleu") {
    const size_t hyphen = task.direction.rfind('-');
    options.tokenize = metrics::default_bleu_tokenizer(hyphen != std::string::npos ? task.direction.substr(hyphen + 1)
                                                       : task.references.empty()
                                                           ? ""
                                                           : metrics::language_of_references(task.references.front()));
  }
  return metrics::make_metric(options);
}

ForcedTexts forced_texts(const TaskOptions& task, const TaskData& data, std::span<const Prompt> prompts,
                         int64_t max_new_tokens, const Engine& engine) {
  ForcedTexts texts;
  for (size_t line = 0; line < prompts.size(); ++line) {
    std::vector<int64_t> ids;
    try {
      ids = data.references.empty() ? engine.encode_continuation(data.sources[line], task)
                                    : engine.encode_reference(data.references[line].front(), task);
    } catch (const UserError& error) {
      Problem problem = error.problems().front();
      const auto& file = task.references.empty() ? source_file(task) : task.references.front();
      if (problem.where.empty()) problem.where = place_of(task, file, line);
      log_warning("task {}: how well drafters predict its references is not measured: {}", task.name,
                  to_string(problem));
      return {};
    }
    if (ids.empty()) continue;
    if (std::ssize(ids) > max_new_tokens) ids.resize(static_cast<size_t>(max_new_tokens));
    texts.prompts.push_back(prompts[line]);
    texts.outputs.push_back(std::move(ids));
  }
  return texts;
}

namespace {

// Keeps the lines that the task uses.
template <class Line>
void cut_out(std::vector<Line>& lines, const TaskOptions& task) {
  lines.erase(lines.begin(), lines.begin() + std::min<std::ptrdiff_t>(task.skip, std::ssize(lines)));
  if (task.limit > 0 && std::ssize(lines) > task.limit) lines.resize(static_cast<size_t>(task.limit));
}

std::vector<std::string> read_documents(const TaskOptions& task) {
  std::vector<std::string> documents;
  const auto stream = data::open_plain_text(task.source, task.separator, {.empty = "drop"});
  for (auto& example : data::read_all(*stream)) documents.push_back(std::move(example.targets.front()));
  return documents;
}

TaskData from_text(const TaskOptions& task) {
  TaskData data;
  data.sources = task.separator.empty() ? data::read_lines(task.source) : read_documents(task);
  std::vector<std::vector<std::string>> streams;
  for (const auto& file : task.references) {
    streams.push_back(data::read_lines(file));
    if (streams.back().size() == data.sources.size()) continue;
    throw UserError(other_line_count(file.string(), "references and sources differ in their number of lines",
                                     streams.back().size(), data.sources.size(), task.source.string()));
  }
  cut_out(data.sources, task);
  for (auto& stream : streams) cut_out(stream, task);
  if (!streams.empty()) data.references = metrics::references_from_streams(streams);
  return data;
}

std::vector<data::Example> read_jsonl(const TaskOptions& task, const std::string& separator) {
  const data::JsonFields fields{task.source_field, task.reference_fields, separator, task.categories};
  const auto stream = data::open_jsonl(task.jsonl, fields, {.empty = "keep"});
  return data::read_all(*stream);
}

// Returns a message's text, which an answer that calls tools may lack.
std::string answer_text(const nlohmann::ordered_json& message) {
  return message.contains("content") && message["content"].is_string() ? message["content"].get<std::string>() : "";
}

// Reads conversations: the prompt is what comes before the assistant's last word, which is the reference.
TaskData from_conversations(const TaskOptions& task) {
  TaskData data;
  for (nlohmann::ordered_json& conversation : data::read_conversations(task.jsonl, task.messages)) {
    const nlohmann::ordered_json& messages = conversation["messages"];
    const auto answer = data::take_answer(conversation);
    if (task.metric.scored() && !answer) {
      throw UserError({place_of(task, task.jsonl, data.sources.size()), "a conversation without a reference",
                       "one that ends in a message of the assistant",
                       "it ends in a message of " + messages.back()["role"].get<std::string>(),
                       "conversations that are not scored need metric = { name = \"none\" }"});
    }
    if (task.metric.scored()) data.references.push_back({answer_text(*answer)});
    data.sources.push_back(conversation.size() > 1 ? conversation.dump() : messages.dump());
  }
  cut_out(data.sources, task);
  cut_out(data.references, task);
  return data;
}

TaskData from_jsonl(const TaskOptions& task) {
  if (!task.messages.empty()) return from_conversations(task);
  TaskData data;
  if (!task.metric.scored()) {
    const auto stream =
        data::open_jsonl(task.jsonl, {"", {task.source_field}, " ", task.categories}, {.empty = "keep"});
    for (auto& example : data::read_all(*stream)) data.sources.push_back(std::move(example.targets.front()));
    cut_out(data.sources, task);
    return data;
  }
  // Models read lists joined by blanks; ROUGE-Lsum reads references joined by newlines.
  for (auto& example : read_jsonl(task, " ")) data.sources.push_back(std::move(example.source));
  for (auto& example : read_jsonl(task, "\n")) data.references.push_back(std::move(example.targets));
  cut_out(data.sources, task);
  cut_out(data.references, task);
  return data;
}

// Returns a conversation of one message of the user, as JSON.
std::string user_message(const std::string& text) {
  const nlohmann::ordered_json message{{"role", "user"}, {"content", text}};
  return nlohmann::ordered_json::array({message}).dump();
}

}  // namespace

TaskData load_task(const TaskOptions& task) {
  TaskData data = task.jsonl.empty() ? from_text(task) : from_jsonl(task);
  if (data.sources.empty()) {
    throw UserError({task.jsonl.empty() ? task.source.string() : task.jsonl.string(), "the task has no line",
                     "at least one line", task.skip > 0 ? "no line after `skip`" : "an empty file", ""});
  }
  if (task.metric.runs_command()) data.plain_sources = data.sources;
  for (auto& source : data.sources) {
    source.insert(0, task.prefix);
    if (task.chat) source = user_message(source);
  }
  const auto metric = task_metric(task);
  for (auto& line : data.references) {
    for (auto& reference : line) reference = metric->text_of(reference);
  }
  return data;
}

std::string place_of(const TaskOptions& task, const std::filesystem::path& file, size_t line) {
  const auto number = std::to_string(static_cast<size_t>(task.skip) + line + 1);
  if (!task.categories.empty())
    return fmt::format("{}, line {} of {}", file.string(), number, fmt::join(task.categories, ", "));
  return task.separator.empty() ? file.string() + ":" + number : file.string() + ", prompt " + number;
}

const std::filesystem::path& source_file(const TaskOptions& task) {
  return task.jsonl.empty() ? task.source : task.jsonl;
}

}  // namespace draftsmith::evaluate
