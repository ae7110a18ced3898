// A small SentencePiece tokenizer.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizers/sentencepiece.h"
#include "data/tokenizers/tokenizer.h"

namespace draftsmith::data {

// Trains a tokenizer of at most 40 pieces on a few sentences, writes it to `file` and returns it.
inline std::unique_ptr<Tokenizer> small_tokenizer(const std::filesystem::path& file) {
  const std::vector<std::string> lines = {
      "the cat sees the dog",           "a dog sees a cat",    "the bird sings", "a tall man walks",
      "the small bird sees a tall dog", "the man sees the cat"};
  train_tokenizer(lines, {.vocabulary = 40, .exact_size = false}, file);
  return load_tokenizer(file);
}

}  // namespace draftsmith::data
