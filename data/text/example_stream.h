// Raw text as a stream of examples, and the policies for malformed lines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/options.h"

namespace draftsmith::data {

// An example as text. Parallel text and jsonl have a source and one or more targets (references). Plain text has an
// empty source and one target.
struct Example {
  std::string source{};
  std::vector<std::string> targets{};
  std::string where{};     // file:line, for messages
  bool has_source = true;  // false: plain text
  // A chat template has written it: the source has its own BOS, and takes no prefix, suffix or EOS.
  bool from_template = false;
};

// The treatment of malformed lines; by default they are errors.
struct TextPolicies {
  std::string invalid_utf8 = "error";   // error | drop | replace (by U+FFFD)
  std::string empty = "error";          // error | drop | keep
  std::string unequal_lines = "error";  // error | truncate (to the shorter file)
  static Fields<TextPolicies> fields();
};

// Counts of a reader. A dropped example is in exactly one of the dropped counts.
struct ReadCounts {
  int64_t examples = 0;               // returned by next()
  int64_t dropped_invalid_utf8 = 0;   // examples
  int64_t replaced_invalid_utf8 = 0;  // examples with at least one sequence replaced
  int64_t dropped_empty = 0;          // examples
  int64_t kept_empty = 0;             // examples with an empty side, kept
  int64_t unpaired_lines = 0;         // unused lines of the longer file
  int64_t crlf_lines = 0;             // lines that ended in CR LF
  int64_t byte_order_marks = 0;       // files that began with one
  // Returns all counts that are not zero, by name, in a fixed order.
  std::vector<std::pair<std::string, int64_t>> nonzero() const;
};

class ExampleStream {
 public:
  virtual ~ExampleStream() = default;
  // Reads the next example. Returns false at the end. Errors: UserError that names file and line.
  virtual bool next(Example& example) = 0;
  virtual const ReadCounts& counts() const = 0;
  // Returns the files, for hashes in the provenance.
  virtual std::vector<std::filesystem::path> files() const = 0;
};

}  // namespace draftsmith::data
