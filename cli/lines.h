// Lines of text or token ids that `generate` and `logits` read, and output lines of `generate`, printed while they
// grow.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizers/tokenizer.h"
#include "infer/generator.h"
#include "infer/load_models.h"

namespace draftsmith::cli {

enum class LineKind { kSource, kTarget };

// Reads the token ids of every line of `file` ("-" is standard input). If `ids`, lines are ids separated by blanks,
// which are taken as they are. Otherwise lines are text; EOS is added to targets and to sources of encoder-decoders,
// and BOS before prompts if the tokenizer's settings ask for it. Empty lines are valid. Errors: a UserError with
// file:line for invalid UTF-8, words that are not ids, and ids outside the vocabulary.
std::vector<std::vector<int64_t>> read_token_lines(const std::string& file, const infer::LoadedModel& loaded,
                                                   LineKind kind, bool ids);

// Returns the text with blanks for line breaks.
std::string one_line(std::string text);
// Returns the ids separated by blanks.
std::string words_of(const std::vector<int64_t>& ids);

// Throws RunError if writing to `out` failed.
void require_written(const std::ostream& out);

// Writes each failed result's error to standard error. Returns the number of failed results.
int64_t report_failures(std::span<const infer::GenerationResult> results);

// Printer of lines that grow at the same time (a batch, samples). Text of a later line waits until all lines before it
// are complete. Never prints half a character. A complete line equals infer::text_of_known() of its tokens in one line
// or, for ids, words_of().
class LivePrinter {
 public:
  // Prints token ids if the tokenizer is null. Both arguments must outlive the printer.
  LivePrinter(std::ostream& out, const data::Tokenizer* tokenizer) : out_(out), tokenizer_(tokenizer) {}

  // Adds tokens to line `line`, counted from 0, and ends the line if `finished`. Throws RunError if writing fails.
  void add(size_t line, std::span<const int64_t> tokens, bool finished);
  // Ends all lines before `line`.
  void finish_before(size_t line);
  // Ends the unfinished line on the terminal, so that a message can follow.
  void break_off();

 private:
  struct Line {
    std::optional<data::StreamDecoder> decoder;
    std::string waiting;  // not printed yet
    bool empty = true;    // no token so far
    bool finished = false;
  };
  Line& line_at(size_t line);
  std::string text_of(Line& line, std::span<const int64_t> tokens) const;
  void print_ready();

  std::ostream& out_;
  const data::Tokenizer* tokenizer_;
  std::map<size_t, Line> lines_;  // line current_ and later ones
  size_t current_ = 0;            // line that is printed live
  bool begun_ = false;            // whether a part of line current_ is printed
};

// Prints one line for each sample of each source, in order. Batches take the sources in order, so that the first
// unfinished line always grows. An output that fails ends its line and is reported with its batch. Returns the number
// of failed outputs. Errors: as Generator::generate; RunError if writing fails; Interrupted. On each error, the growing
// line is ended first.
int64_t generate_live(infer::Generator& generator, std::span<const std::vector<int64_t>> sources, LivePrinter& printer);

}  // namespace draftsmith::cli
