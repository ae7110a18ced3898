// SentencePiece models (Kudo and Richardson 2018): spiece.model of T5, tokenizer.model of Llama, and those of families
// that give pieces ids of their own (Marian, M2M-100, NLLB, mBART-50, Pegasus). Reading and training.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/options.h"
#include "data/text/readers.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

// Loads a model; its name and the files beside it tell the family. Errors: UserError for a missing file, a file that is
// not a SentencePiece model, and a malformed vocab.json or configuration.
std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& file);

// Returns a tokenizer.json (of Hugging Face's tokenizers) that gives texts the model's ids; null for a model that is
// no unigram. Errors: as load_sentencepiece.
nlohmann::ordered_json sentencepiece_json(const std::filesystem::path& file);

// Returns whether an existing file is a SentencePiece model.
bool is_sentencepiece(const std::filesystem::path& file);

// How train_tokenizer() trains: unigram (Kudo 2018) or BPE (Sennrich et al. 2016) with T5's conventions: pad 0, EOS 1,
// unk 2, no BOS. Equal text and options give the same file, byte for byte, on every machine.
struct TokenizerOptions {
  std::string type = "unigram";     // unigram | bpe
  int64_t vocabulary = 8000;        // pieces, control symbols included
  bool exact_size = true;           // false: a unigram model may be smaller if the text has too few pieces
  double character_coverage = 1.0;  // share of the text's characters that become pieces; others are unk
  bool byte_fallback = false;       // characters without a piece become bytes (256 further pieces) instead of unk
  int64_t max_lines = 1000000;      // maximum lines; of more, those at equal distances
  static Fields<TokenizerOptions> fields();
};

struct TokenizerTrainingReport {
  int64_t lines = 0;       // lines read
  TextCounts unused{};     // lines of them, by the reason why
  int64_t vocabulary = 0;  // pieces of the model
  std::string hash{};      // SHA-256 of the file
};

// Trains on lines of valid UTF-8 and writes the model to `file`. Errors: UserError for empty text, and for a vocabulary
// that does not fit the text, with a size that would.
TokenizerTrainingReport train_tokenizer(const std::vector<std::string>& lines, const TokenizerOptions& options,
                                        const std::filesystem::path& file);

}  // namespace draftsmith::data
