// Tokenizes the examples of a corpus, one chunk of text at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/corpus/prepare_options.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

struct Pair {
  std::vector<int32_t> source;
  std::vector<int32_t> target;
};

// The result of one chunk of text. An error is kept until the earlier chunks are written, so that the first bad line of
// the input is reported.
struct Chunk {
  std::vector<Pair> pairs;
  PrepareReport counts;
  std::optional<Problem> error;
  int64_t examples = 0;
};

// Turns examples into pairs of ids that keep to the options: prompts, affixes, lengths, references. Several threads may
// share one.
class ChunkTokenizer {
 public:
  // Tokenizer and options must outlive the object.
  ChunkTokenizer(const Tokenizer& tokenizer, const PrepareOptions& options);

  Chunk operator()(const std::vector<Example>& examples) const;

 private:
  void add(const Example& example, const std::string& target, Chunk& chunk) const;
  void add_windows(const std::vector<int32_t>& text, Chunk& chunk) const;
  Pair window(const std::vector<int32_t>& text, int64_t begin, int64_t end) const;
  Pair ids_of(const Example& example, const std::string& target) const;
  void keep(Pair pair, Chunk& chunk) const;
  bool splits() const { return options_.too_long == "split"; }
  std::vector<int32_t> source_ids(const std::string& text) const;
  bool fits(Pair& pair, const Example& example, Chunk& chunk) const;
  int64_t truncate_target(std::vector<int32_t>& ids) const;
  int64_t truncate_source(std::vector<int32_t>& ids) const;

  const Tokenizer& tokenizer_;
  const PrepareOptions& options_;
  std::vector<int32_t> before_;  // of every prompt, as in generation: BOS, if the tokenizer's frame has one
  std::vector<int32_t> end_;     // of every source: the suffix and EOS
};

}  // namespace draftsmith::data
