// Readers of raw text: parallel files, jsonl and plain text as a stream of examples.
//
// Text files are UTF-8 with one example per line. LF and CR LF end a line; the last line may have no end. A byte order
// mark at the start of a file is skipped. A malformed line is an error that names file and line, or a policy of
// TextPolicies applies and is counted; no line is dropped silently.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <istream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"
#include "base/options.h"

namespace draftsmith::data {

// Reads the lines of a text file.
class LineReader {
 public:
  // Errors: UserError for a missing or unreadable file or a directory.
  explicit LineReader(const std::filesystem::path& file);
  // Reads a stream that others own and that outlives the reader; `name` stands for the file in messages.
  LineReader(std::istream& stream, const std::string& name);
  // Reads the next line without its end (LF or CR LF, optional for the last line). Returns false at the end.
  bool next(std::string& line);
  // Returns the number of the last line read, from 1.
  int64_t line() const { return line_; }
  // Returns file:line of the last line read.
  std::string where() const;

 private:
  std::filesystem::path file_;
  std::unique_ptr<std::istream> owned_;
  std::istream* input_;
  int64_t line_ = 0;
};

// Returns a reader of a file, or of standard input where `file` is "-". /dev/stdin would do, but a container's user may
// not open it. Errors: as the reader's.
LineReader open_lines(const std::string& file);

// Returns the number of lines of a file, for a progress bar; 0 if the file cannot be read.
int64_t count_lines(const std::filesystem::path& file);

// Throws a UserError for a line with invalid UTF-8 that names file:line, the byte's offset in the line and its value.
[[noreturn]] void throw_invalid_utf8(const std::string& where, const std::string& line, size_t at);

// An example as text. Parallel text and jsonl have a source and one or more targets (references). Plain text has an
// empty source and one target.
struct Example {
  std::string source{};
  std::vector<std::string> targets{};
  std::string where{};         // file:line, for messages
  std::string target_where{};  // parallel text: file:line of the target
  bool has_source = true;      // false: plain text
  // A chat template has written it: the source has its own BOS, and takes no prefix, suffix or EOS.
  bool from_template = false;
};

// The treatment of malformed lines; by default they are errors.
struct TextPolicies {
  std::string invalid_utf8 = "error";  // error | drop
  std::string empty = "error";         // error | drop | keep
  static Fields<TextPolicies> fields();
};

// Counts of text that was left out, by what happened to it. A dropped example is counted once.
using TextCounts = std::map<std::string, int64_t>;

// A stream of examples that applies the policies. Formats (parallel text, jsonl, plain text, chat) read its lines.
class ExampleStream {
 public:
  // Reads one raw example, whose text is not checked yet. Returns false at the end.
  using Format = std::function<bool(ExampleStream& stream, Example& example)>;

  // Opens the files that the format reads. `also` is a file that examples depend on as well, such as a chat template.
  ExampleStream(const std::vector<std::filesystem::path>& files, const TextPolicies& policies, Format format,
                const std::filesystem::path& also = {});

  // Reads the next example. Returns false at the end. Errors: UserError that names file and line.
  bool next(Example& example);
  const TextCounts& counts() const { return counts_; }
  // Returns the files, for hashes in the provenance.
  const std::vector<std::filesystem::path>& files() const { return files_; }

  // For formats: the lines of a file.
  LineReader& lines(size_t file = 0) { return lines_[file]; }
  // Applies the policy for invalid UTF-8 to a text. Returns false, and counts, if its example must be dropped.
  bool admit_utf8(const std::string& where, const std::string& text);
  // Applies the policy for empty text to a line without any example. Errors: UserError with `problem`.
  void drop_empty(const Problem& problem);

 private:
  bool admit_utf8(const Example& example);
  bool admit_empty(const Example& example);

  TextPolicies policies_;
  Format format_;
  std::vector<std::filesystem::path> files_;
  std::vector<LineReader> lines_;
  TextCounts counts_;
};

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

// Returns the object on a line of jsonl. Errors: UserError for a line that is none.
nlohmann::json parse_object_line(const std::string& line, const std::string& where);

// Returns all lines of a text file, or of several (valid UTF-8, empty lines included).
std::vector<std::string> read_lines(const std::filesystem::path& file);
std::vector<std::string> read_lines(const std::vector<std::filesystem::path>& files);

// Returns the remaining examples of a stream.
std::vector<Example> read_all(ExampleStream& stream);

}  // namespace draftsmith::data
