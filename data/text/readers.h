// Readers of raw text: parallel files, jsonl and plain text as a stream of examples.
//
// Text files are UTF-8 with one example per line. LF and CR LF end a line; the last line may have no end. A byte order
// mark at the start of a file is skipped. CR LF and byte order marks are counted. A malformed line is an error that
// names file and line, or a policy of TextPolicies applies and is counted; no line is dropped silently.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/text/example_stream.h"

namespace draftsmith::data {

// Opens two files with one example per line.
std::unique_ptr<ExampleStream> open_parallel(const std::filesystem::path& source, const std::filesystem::path& target,
                                             const TextPolicies& policies);

// The fields of a JSON object with the source and the targets.
struct JsonFields {
  std::string source{};                // empty: no source (plain text in jsonl)
  std::vector<std::string> targets{};  // several fields give several references
  std::string separator = " ";         // joins fields that are lists of strings
  // Objects whose field `category` is another are passed over; empty: none are.
  std::vector<std::string> categories{};
};

// Opens a file with one JSON object per line. The separator joins the elements of a field that is a list of strings. A
// missing field and a field of another type are errors. A field "turns[0]" is the first element of the list "turns". An
// example is empty if its source or all its targets are empty.
std::unique_ptr<ExampleStream> open_jsonl(const std::filesystem::path& file, const JsonFields& fields,
                                          const TextPolicies& policies);

// Opens plain text. Without a separator, each line is an example. With one, the lines between two separator lines,
// joined by newlines, are an example.
std::unique_ptr<ExampleStream> open_plain_text(const std::filesystem::path& file, const std::string& separator,
                                               const TextPolicies& policies);

// Returns all lines of a text file (valid UTF-8, empty lines included).
std::vector<std::string> read_lines(const std::filesystem::path& file);

// Returns the remaining examples of a stream.
std::vector<Example> read_all(ExampleStream& stream);

}  // namespace draftsmith::data
