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

#include "base/options.h"

namespace draftsmith::data {

// One example as text. Parallel text and jsonl give a source and one or more targets (references); plain text gives an
// empty source and the text as the only target.
struct Example {
  std::string source{};
  std::vector<std::string> targets{};
  std::string where{};     // file:line, for messages
  bool has_source = true;  // false: plain text
};

// What to do with lines that are not as they should be. The default of each is an error.
struct TextPolicies {
  std::string invalid_utf8 = "error";   // error | drop | replace (by U+FFFD)
  std::string empty = "error";          // error | drop | keep
  std::string unequal_lines = "error";  // error | truncate (to the shorter file)
  static Fields<TextPolicies> fields();
};

// What a reader met. Lines are counted as read; dropped examples are in one of the dropped counts.
struct ReadCounts {
  int64_t examples = 0;               // given out
  int64_t dropped_invalid_utf8 = 0;   // examples
  int64_t replaced_invalid_utf8 = 0;  // examples with at least one sequence replaced
  int64_t dropped_empty = 0;          // examples
  int64_t kept_empty = 0;             // examples with an empty side, kept
  int64_t unpaired_lines = 0;         // of the longer file, not used
  int64_t crlf_lines = 0;             // lines that ended in CR LF
  int64_t byte_order_marks = 0;       // files that began with one
  // Every count that is not zero, by name, in a fixed order.
  std::vector<std::pair<std::string, int64_t>> nonzero() const;
};

class ExampleStream {
 public:
  virtual ~ExampleStream() = default;
  // The next example, or false at the end. Errors: UserError naming file and line.
  virtual bool next(Example& example) = 0;
  virtual const ReadCounts& counts() const = 0;
  // The files read, for hashes in provenance.
  virtual std::vector<std::filesystem::path> files() const = 0;
};

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
