// Byte pair encoding (Sennrich et al. 2016) of one word: merges the adjacent pair with the best rank, the leftmost
// among equals, until no merge applies. Byte-level models (Radford et al. 2019) start from bytes. Other models start
// from characters; a character without a piece becomes its bytes or <unk>.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/tokenizers/word_cache.h"

namespace draftsmith::data {

// The model as a file describes it.
struct BpeDescription {
  std::vector<std::pair<std::string, int32_t>> pieces;      // any order
  std::vector<std::pair<std::string, std::string>> merges;  // best first
  std::string unk_token{};                                  // empty: characters without a piece are dropped
  bool fuse_unk = false;                                    // one <unk> for adjacent unknown characters
  bool byte_fallback = false;                               // bytes such as <0xE4> instead of <unk>
  bool ignore_merges = false;                               // a word that is a piece becomes that piece
  bool byte_level = true;                                   // words are bytes, pieces are byte-level characters
};

class BpeModel {
 public:
  // `where` names the file in messages. Errors: UserError for an id that is negative, too large or given twice, a merge
  // of missing pieces, and an unknown token that is not a piece.
  BpeModel(const BpeDescription& description, const std::string& where);

  // Appends the ids of one word.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;
  // Like encode(), but without the cache.
  void merge(std::string_view word, std::vector<int32_t>& ids) const;

  // Returns the pieces by id; the piece of an unused id is empty.
  const std::vector<std::string>& pieces() const { return pieces_; }
  // Returns the id of a piece as the file writes it, or -1.
  int32_t find(std::string_view piece) const;
  int32_t unk() const { return unk_; }
  // Returns the number of pieces; ids may have gaps.
  int64_t count() const { return static_cast<int64_t>(ids_.size()); }

  // Largest id that a file may use.
  static constexpr int64_t kMaxId = (int64_t{1} << 21) - 1;

 private:
  struct Merge {
    uint64_t pair = kNoPair;
    uint32_t rank = 0;
    int32_t id = -1;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return WordCache::hash(text); }
  };
  using Ids = std::unordered_map<std::string, int32_t, Hash, std::equal_to<>>;
  static constexpr uint64_t kNoPair = ~uint64_t{0};

  static uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  void read_pieces(const BpeDescription& description, const std::string& where);
  void read_merges(const BpeDescription& description, const std::string& where);
  void add_merge(uint64_t pair, uint32_t rank, int32_t id);
  const Merge* merge_of(int32_t left, int32_t right) const;
  std::vector<int32_t> first_symbols(std::string_view word) const;
  bool add_bytes(std::string_view character, std::vector<int32_t>& symbols) const;
  void merge_symbols(std::vector<int32_t>& symbols) const;
  void merge_long(std::vector<int32_t>& symbols) const;

  bool byte_level_;
  bool fuse_unk_;
  bool byte_fallback_;
  bool ignore_merges_;
  int32_t unk_ = -1;
  std::vector<std::string> pieces_;
  Ids ids_;    // ids by piece as written
  Ids words_;  // ids by a piece's bytes; only with ignore_merges and byte_level
  std::array<int32_t, 256> byte_ids_{};
  std::vector<Merge> merges_;  // hash table with open addressing; the size is a power of two
  std::unique_ptr<WordCache> cache_;
};

}  // namespace draftsmith::data
