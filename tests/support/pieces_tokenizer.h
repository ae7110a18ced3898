// Tokenizers for tests: one of which nothing but its number of pieces and its hash is asked, and one of letters.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace draftsmith::infer::testing {

class Pieces : public data::Tokenizer {
 public:
  explicit Pieces(int64_t count, std::string hash = "pieces") : count_(count) {
    hash_ = std::move(hash);
    special_ids_ = {.pad = 0, .eos = 1, .unk = 2};
  }
  std::vector<int32_t> encode(std::string_view) const override { return {}; }
  std::string decode(std::span<const int32_t>) const override { return {}; }
  int64_t vocabulary() const override { return count_; }
  std::string piece(int32_t) const override { return {}; }

 private:
  int64_t count_;
};

// Ids are letters: 2 is "a", 3 is "b" and so on; 0 and 1 have no text.
class Letters : public Pieces {
 public:
  using Pieces::Pieces;
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text += id < 2 ? "" : std::string(1, static_cast<char>('a' + id - 2));
    return text;
  }
};

}  // namespace draftsmith::infer::testing
