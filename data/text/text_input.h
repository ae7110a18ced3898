// The raw text that a user names, by files and fields.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/options.h"
#include "data/text/readers.h"

namespace draftsmith::data {

// The input text: exactly one of parallel files, a jsonl file and plain text.
struct TextInput {
  std::string dataset{};           // name in the data folder (data/datasets/datasets.h fills in the rest)
  std::string direction{};         // of a data set of parallel text, "de-en"
  std::filesystem::path source{};  // parallel text
  std::filesystem::path target{};
  std::filesystem::path jsonl{};  // with named fields
  std::string source_field = "source";
  std::vector<std::string> target_fields = {"target"};
  std::string messages{};                 // field with a conversation, in place of source and targets
  std::filesystem::path chat_template{};  // a model directory, or a file in it
  std::string join = " ";                 // separates the elements of a field that is a list of strings
  std::filesystem::path text{};           // plain text: targets without sources
  std::string separator{};                // line that separates documents of plain text; empty: each line is a document
  static Fields<TextInput> fields();
};

// Returns the input with the chat template of its tokenizer (a file or a model directory), if it has conversations and
// no template yet.
TextInput with_template_of(const std::filesystem::path& tokenizer, TextInput input);

// Opens the input. Errors: UserError if it names no kind or several, half of a parallel pair, or a pipe.
std::unique_ptr<ExampleStream> open_text(const TextInput& input, const TextPolicies& policies);

}  // namespace draftsmith::data
