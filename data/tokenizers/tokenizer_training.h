// Training of SentencePiece tokenizers (Kudo and Richardson 2018; unigram: Kudo 2018, BPE: Sennrich et al. 2016) with
// T5's conventions: pad 0, eos 1, unk 2, no bos. Same text and options: the same file, byte for byte, on every machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/options.h"

namespace draftsmith::data {

struct TokenizerOptions {
  std::string type = "unigram";            // unigram | bpe
  int64_t vocabulary = 8000;               // pieces, control symbols included
  bool exact_size = true;                  // false: a unigram model may end up smaller when the text has too few pieces
  double character_coverage = 1.0;         // share of the text's characters that become pieces; the rest is unk
  bool byte_fallback = false;              // characters without a piece become bytes (256 pieces more) instead of unk
  std::string normalization = "nmt_nfkc";  // nmt_nfkc | nfkc | nmt_nfkc_cf | nfkc_cf | identity
  std::vector<std::string> symbols{};      // pieces that are never split, such as "#Person1#"
  int64_t max_lines = 1000000;             // train on a sample of so many lines (reservoir sampling by `seed`)
  uint64_t seed = 1;
  static Fields<TokenizerOptions> fields();
};

// What training used; nothing is left out silently.
struct TokenizerTrainingReport {
  int64_t lines = 0;        // read
  int64_t empty = 0;        // white space only: nothing to learn from
  int64_t reserved = 0;     // contain U+2585, which SentencePiece reserves for unknown bytes: not used
  int64_t sampled_out = 0;  // not in the sample of max_lines
  int64_t vocabulary = 0;   // pieces of the model
  std::string hash{};       // SHA-256 of the file
  // The counts of lines that were not used, by name, where not zero.
  std::vector<std::pair<std::string, int64_t>> nonzero() const;
};

// Gives the next line of text (valid UTF-8), or false at the end.
using LineSource = std::function<bool(std::string&)>;

// Trains on the lines and writes the model to `file`. Errors: UserError when the text is empty or the vocabulary does
// not fit it (the message says what would).
TokenizerTrainingReport train_tokenizer(const LineSource& source, const TokenizerOptions& options,
                                        const std::filesystem::path& file);

// The same on text files, line by line. Errors: also invalid UTF-8, naming file and line.
TokenizerTrainingReport train_tokenizer(const std::vector<std::filesystem::path>& files,
                                        const TokenizerOptions& options, const std::filesystem::path& file);

// The same on lines in memory.
TokenizerTrainingReport train_tokenizer(const std::vector<std::string>& lines, const TokenizerOptions& options,
                                        const std::filesystem::path& file);

}  // namespace draftsmith::data
