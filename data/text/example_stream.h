// Raw text as a stream of examples, and the policies for lines that are malformed.
#pragma once

#include <cstdint>
#include <filesystem>
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

}  // namespace draftsmith::data
