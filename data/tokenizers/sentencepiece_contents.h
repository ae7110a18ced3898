// What a SentencePiece model file holds, for writing it in another format: SentencePiece's own interface gives neither
// the kind of model nor its normalisation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace draftsmith::data {

struct SentencePieceContents {
  enum class Kind : int32_t { kUnigram = 1, kBpe = 2, kWord = 3, kCharacter = 4 };
  // 1 normal, 2 unknown, 3 control, 4 defined by the user, 5 unused, 6 byte.
  struct Piece {
    std::string text{};
    float score = 0;
    int32_t type = 1;
  };
  std::vector<Piece> pieces{};  // by id
  Kind kind = Kind::kUnigram;
  std::string character_map{};  // precompiled_charsmap; empty: texts stay as they are
  bool adds_space = true;       // a space in front of every text
  bool joins_spaces = true;     // runs of spaces become one
};

// Reads a model file. Errors: UserError for a file that is no SentencePiece model.
SentencePieceContents read_sentencepiece(const std::filesystem::path& file);

}  // namespace draftsmith::data
