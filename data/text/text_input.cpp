#include "data/text/text_input.h"

#include <system_error>

#include "base/error.h"
#include "data/chat/chat_template.h"
#include "data/text/readers.h"

namespace draftsmith::data {
namespace {

// Refuses a pipe: text is read more than once, to count lines and to hash files, and the second pass over a pipe would
// silently find less text.
void require_regular_file(const std::filesystem::path& file) {
  std::error_code ignored;
  const auto type = std::filesystem::status(file, ignored).type();
  using std::filesystem::file_type;
  if (type == file_type::fifo || type == file_type::character || type == file_type::socket) {
    throw UserError({.where = file.string(),
                     .what = "is a pipe or a device, but text is read twice",
                     .expected = "a regular file",
                     .hint = "write the text to a file first"});
  }
}

}  // namespace

Fields<TextInput> TextInput::fields() {
  return Fields<TextInput>("text input")
      .add("dataset", &TextInput::dataset,
           "Data set by name, instead of files: \"multi30k/train\"; `draftsmith data list` shows what is there.")
      .add("direction", &TextInput::direction, "With a data set of parallel text: source and target, \"de-en\".")
      .add("source", &TextInput::source, "Parallel text: file with one source per line.")
      .add("target", &TextInput::target, "Parallel text: file with one target per line.")
      .add("jsonl", &TextInput::jsonl, "File with one JSON object per line.")
      .add("source_field", &TextInput::source_field,
           "Field of the JSON objects with the source; turns[0] is the first element of a list; empty: no source.")
      .add("target_fields", &TextInput::target_fields,
           "Fields with the targets; several fields give several references.")
      .add(
          "messages", &TextInput::messages,
          "Field of the JSON objects with a conversation, a list of messages with role and content, in place of source "
          "and targets. Each message of the assistant is an example, and alone is learned; the text before it, as the "
          "chat template writes it, is the prompt. Fields tools and documents are passed to the template.")
      .add("chat_template", &TextInput::chat_template,
           "With messages: model directory whose chat template is taken, or a .jinja file; default: the tokenizer's.")
      .add("join", &TextInput::join, "Separator of the elements of fields that are lists of strings.")
      .add("text", &TextInput::text, "Plain text: file of targets without sources.")
      .add("separator", &TextInput::separator,
           "Line that separates documents of plain text; empty: every line is a document.");
}

TextInput with_template_of(const std::filesystem::path& tokenizer, TextInput input) {
  if (!input.messages.empty() && input.chat_template.empty()) input.chat_template = tokenizer;
  return input;
}

std::unique_ptr<ExampleStream> open_text(const TextInput& input, const TextPolicies& policies) {
  const bool parallel = !input.source.empty() || !input.target.empty();
  const int kinds = (parallel ? 1 : 0) + (input.jsonl.empty() ? 0 : 1) + (input.text.empty() ? 0 : 1);
  if (kinds != 1 || input.source.empty() != input.target.empty()) {
    throw UserError({.where = "text input",
                     .what = kinds > 1    ? "more than one kind of input"
                             : kinds == 0 ? "no input"
                                          : "half of a pair of parallel files",
                     .expected = "source and target, or jsonl, or text"});
  }
  for (const auto* file : {&input.source, &input.target, &input.jsonl, &input.text}) require_regular_file(*file);
  if (!input.messages.empty()) {
    if (input.jsonl.empty()) {
      throw UserError({.where = "text input", .what = "conversations stand in jsonl files", .expected = "jsonl"});
    }
    return open_chat(input.jsonl, input.messages, load_chat_template(input.chat_template), policies);
  }
  if (parallel) return open_parallel(input.source, input.target, policies);
  if (!input.text.empty()) return open_plain_text(input.text, input.separator, policies);
  return open_jsonl(input.jsonl, {input.source_field, input.target_fields, input.join}, policies);
}

}  // namespace draftsmith::data
