// Files that the data tests write and the shared ones they read.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "data/tokenizers/load_tokenizer.h"
#include "data/tokenizers/tokenizer_training.h"
#include "tests/support/paths.h"

namespace draftsmith::data {

inline std::filesystem::path write_text(const std::filesystem::path& file, std::string_view text) {
  std::ofstream(file, std::ios::binary) << text;
  return file;
}

// A small tokenizer over a few words, trained where it is asked for.
inline std::unique_ptr<Tokenizer> small_tokenizer(const std::filesystem::path& file) {
  const std::vector<std::string> lines = {
      "the cat sees the dog",           "a dog sees a cat",    "the bird sings", "a tall man walks",
      "the small bird sees a tall dog", "the man sees the cat"};
  train_tokenizer(lines, {.vocabulary = 40, .exact_size = false}, file);
  return load_tokenizer(file);
}

// The message of the UserError that `action` throws; empty when it throws none.
template <class Action>
std::string user_error(const Action& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

}  // namespace draftsmith::data
