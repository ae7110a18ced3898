// The raw text that a user names, by files and fields.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/options.h"
#include "data/text/example_stream.h"

namespace draftsmith::data {

// The input text: exactly one of parallel files, a jsonl file and plain text.
struct TextInput {
  std::filesystem::path source{};  // parallel text
  std::filesystem::path target{};
  std::filesystem::path jsonl{};  // with named fields
  std::string source_field = "source";
  std::vector<std::string> target_fields = {"target"};
  std::string join = " ";        // separates the elements of a field that is a list of strings
  std::filesystem::path text{};  // plain text: targets without sources
  std::string separator{};       // line that separates documents of plain text; empty: each line is a document
  static Fields<TextInput> fields();
};

// Opens the input. Errors: UserError if it names no kind or several, half of a parallel pair, or a pipe.
std::unique_ptr<ExampleStream> open_text(const TextInput& input, const TextPolicies& policies);

}  // namespace draftsmith::data
