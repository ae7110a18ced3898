// Output lines of `generate` while they grow: the first unfinished line live, the lines after it in their turn.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <span>
#include <string>

#include "data/tokenizers/stream_decoder.h"
#include "infer/generator.h"

namespace draftsmith::cli {

// Throws RunError when writing to standard output failed.
void require_written(const std::ostream& out);

// Several lines may grow at once (a batch, samples): what belongs to a later line waits until all before it are
// complete, then it is printed as far as it has come and goes on live. Never prints half a character; a complete line
// is the text_of(), or with ids the words_of(), of its tokens.
class LivePrinter {
 public:
  // With a null tokenizer token ids are printed. Both must outlive the printer.
  LivePrinter(std::ostream& out, const data::Tokenizer* tokenizer) : out_(out), tokenizer_(tokenizer) {}

  // More tokens of line `line`, counted from 0; `finished`: its last. Throws RunError when writing fails.
  void add(size_t line, std::span<const int64_t> tokens, bool finished);
  // Lines before `line` get nothing more.
  void finish_before(size_t line);
  // Ends a line that stays incomplete, so that a message can follow.
  void break_off();

 private:
  struct Line {
    std::optional<data::StreamDecoder> decoder;
    std::string waiting;  // not printed yet
    bool empty = true;    // has no token yet
    bool finished = false;
  };
  Line& line_at(size_t line);
  std::string text_of(Line& line, std::span<const int64_t> tokens) const;
  void print_ready();

  std::ostream& out_;
  const data::Tokenizer* tokenizer_;
  std::map<size_t, Line> lines_;  // from current_ on
  size_t current_ = 0;            // the line that is printed live
  bool begun_ = false;            // something of it is printed
};

// One line for each sample of each source, in their order. Batches take the sources in their order, so that the first
// unfinished line is always growing. Errors: those of Generator::generate; RunError when writing fails; Interrupted.
// After each of them the line that was growing is ended, so that a message can follow.
void generate_live(infer::Generator& generator, std::span<const std::vector<int64_t>> sources, LivePrinter& printer);

}  // namespace draftsmith::cli
