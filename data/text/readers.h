// Readers of raw text: parallel files, jsonl and plain text, all as one stream of examples.
//
// Text files are UTF-8, one example a line. CRLF and LF both end a line, the last line needs none, and a byte order
// mark at the start of a file is skipped (both are counted). Whatever is wrong with a file is an error that names file
// and line, or is handled by a policy of TextPolicies and counted; nothing is dropped silently.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/text/example_stream.h"

namespace draftsmith::data {

// Two files, one example a line.
std::unique_ptr<ExampleStream> open_parallel(const std::filesystem::path& source, const std::filesystem::path& target,
                                             const TextPolicies& policies);

// Which fields of a jsonl object are the source and the target(s).
struct JsonFields {
  std::string source{};                // empty: there is none (plain text in jsonl)
  std::vector<std::string> targets{};  // several: several references
  std::string separator = " ";         // joins fields that are lists of strings
};

// One JSON object a line. A field that is a list of strings is joined by the separator; a missing field or one of
// another type is an error. An example is empty when its source or all of its targets are.
std::unique_ptr<ExampleStream> open_jsonl(const std::filesystem::path& file, const JsonFields& fields,
                                          const TextPolicies& policies);

// Plain text: one example a line, or, with a separator, what lies between lines that equal it (lines joined by a
// newline).
std::unique_ptr<ExampleStream> open_plain_text(const std::filesystem::path& file, const std::string& separator,
                                               const TextPolicies& policies);

// All lines of a text file (valid UTF-8, empty lines kept): what evaluation reads.
std::vector<std::string> read_lines(const std::filesystem::path& file);

// The rest of a stream in memory.
std::vector<Example> read_all(ExampleStream& stream);

}  // namespace draftsmith::data
