#include "data/tokenizers/bpe_model.h"

#include <algorithm>
#include <bit>
#include <queue>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "data/tokenizers/byte_level.h"

namespace draftsmith::data {

namespace {

// Words with more symbols are merged with a heap, in n log n instead of n² steps.
constexpr size_t kShortWord = 24;

std::string quoted(const std::string& piece) {
  return "'" + piece.substr(0, 60) + "'";
}

}  // namespace

BpeModel::BpeModel(const BpeDescription& description, const std::string& where)
    : byte_level_(description.byte_level),
      fuse_unk_(description.fuse_unk),
      byte_fallback_(description.byte_fallback),
      ignore_merges_(description.ignore_merges),
      cache_(std::make_unique<WordCache>()) {
  read_pieces(description, where);
  read_merges(description, where);
  if (description.unk_token.empty()) return;
  unk_ = find(description.unk_token);
  if (unk_ < 0) {
    throw UserError({.where = where,
                     .what = "the unknown token is not in the vocabulary",
                     .expected = "a piece of the vocabulary as unk_token",
                     .found = quoted(description.unk_token)});
  }
}

void BpeModel::read_pieces(const BpeDescription& description, const std::string& where) {
  const auto refuse = [&](const std::string& what, const std::string& piece, int32_t id) {
    throw UserError({.where = where,
                     .what = what,
                     .expected = fmt::format("each piece once, ids from 0 to {}, each once", kMaxId),
                     .found = fmt::format("{} with id {}", quoted(piece), id)});
  };
  std::vector<bool> taken;
  ids_.reserve(description.pieces.size());
  for (const auto& [piece, id] : description.pieces) {
    if (id < 0 || id > kMaxId) refuse("a token id out of range", piece, id);
    const auto index = static_cast<size_t>(id);
    if (index >= pieces_.size()) {
      pieces_.resize(index + 1);
      taken.resize(index + 1);
    }
    if (taken[index]) refuse("a token id given twice", piece, id);
    taken[index] = true;
    pieces_[index] = piece;
    if (!ids_.emplace(piece, id).second) refuse("a piece given twice", piece, id);
    if (byte_level_ && ignore_merges_) {
      if (auto bytes = bytes_of_piece(piece)) words_.emplace(std::move(*bytes), id);
    }
  }
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const char c = static_cast<char>(byte);
    byte_ids_[byte] = find(byte_level_ ? piece_of_bytes({&c, 1}) : fmt::format("<0x{:02X}>", byte));
  }
}

void BpeModel::read_merges(const BpeDescription& description, const std::string& where) {
  merges_.resize(std::bit_ceil(std::max<size_t>(16, 2 * description.merges.size() + 1)));
  for (size_t rank = 0; rank < description.merges.size(); ++rank) {
    const auto& [left, right] = description.merges[rank];
    for (const std::string& piece : {left, right, left + right}) {
      if (find(piece) >= 0) continue;
      throw UserError({.where = where,
                       .what = fmt::format("merge {} needs a piece that is not in the vocabulary", rank + 1),
                       .expected = fmt::format("{}, {} and their union in the vocabulary", quoted(left), quoted(right)),
                       .found = "no piece " + quoted(piece)});
    }
    add_merge(pair_of(find(left), find(right)), static_cast<uint32_t>(rank), find(left + right));
  }
}

void BpeModel::add_merge(uint64_t pair, uint32_t rank, int32_t id) {
  const size_t mask = merges_.size() - 1;
  size_t place = (pair * 0x9E3779B97F4A7C15ULL >> 20) & mask;
  while (merges_[place].pair != kNoPair && merges_[place].pair != pair) place = (place + 1) & mask;
  merges_[place] = {pair, rank, id};  // the last rank of a repeated pair counts, as in `tokenizers`
}

const BpeModel::Merge* BpeModel::merge_of(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  const size_t mask = merges_.size() - 1;
  size_t place = (pair * 0x9E3779B97F4A7C15ULL >> 20) & mask;
  while (merges_[place].pair != pair) {
    if (merges_[place].pair == kNoPair) return nullptr;
    place = (place + 1) & mask;
  }
  return &merges_[place];
}

int32_t BpeModel::find(std::string_view piece) const {
  const auto found = ids_.find(piece);
  return found == ids_.end() ? -1 : found->second;
}

bool BpeModel::add_bytes(std::string_view character, std::vector<int32_t>& symbols) const {
  const auto id = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
  if (std::any_of(character.begin(), character.end(), [&](char c) { return id(c) < 0; })) return false;
  for (const char c : character) symbols.push_back(id(c));
  return true;
}

std::vector<int32_t> BpeModel::first_symbols(std::string_view word) const {
  std::vector<int32_t> symbols;
  symbols.reserve(word.size());
  bool unknown = false;  // an <unk> that may be fused with the next one
  for (size_t at = 0; at < word.size();) {
    // In byte-level text each byte is a character.
    const size_t length = byte_level_ ? 1 : code_point_at(word, at).length;
    const std::string_view character = word.substr(at, length);
    at += length;
    const int32_t id = byte_level_ ? byte_ids_[static_cast<uint8_t>(character[0])] : find(character);
    if (id >= 0) {
      if (unknown) symbols.push_back(unk_);
      unknown = false;
      symbols.push_back(id);
      continue;
    }
    if (byte_fallback_ && !byte_level_ && add_bytes(character, symbols)) continue;
    if (unk_ < 0) continue;
    if (unknown && !fuse_unk_) symbols.push_back(unk_);
    unknown = true;
  }
  if (unknown) symbols.push_back(unk_);
  return symbols;
}

void BpeModel::merge_symbols(std::vector<int32_t>& symbols) const {
  if (symbols.size() > kShortWord) return merge_long(symbols);
  std::array<const Merge*, kShortWord> pairs{};
  for (size_t i = 0; i + 1 < symbols.size(); ++i) pairs[i] = merge_of(symbols[i], symbols[i + 1]);
  while (symbols.size() > 1) {
    size_t best = symbols.size();
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      if (pairs[i] != nullptr && (best == symbols.size() || pairs[i]->rank < pairs[best]->rank)) best = i;
    }
    if (best == symbols.size()) return;
    symbols[best] = pairs[best]->id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    std::copy(pairs.begin() + best + 1, pairs.begin() + symbols.size(), pairs.begin() + best);
    if (best + 1 < symbols.size()) pairs[best] = merge_of(symbols[best], symbols[best + 1]);
    if (best > 0) pairs[best - 1] = merge_of(symbols[best - 1], symbols[best]);
  }
}

void BpeModel::merge_long(std::vector<int32_t>& symbols) const {
  struct Candidate {
    uint32_t rank;
    uint32_t left;  // index of the left symbol
    int32_t left_id;
    int32_t right_id;
    bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : left > other.left; }
  };
  const auto size = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> next(size);
  std::vector<uint32_t> previous(size);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](uint32_t left) {
    if (next[left] == size) return;
    const Merge* merge = merge_of(symbols[left], symbols[next[left]]);
    if (merge != nullptr) queue.push({merge->rank, left, symbols[left], symbols[next[left]]});
  };
  for (uint32_t i = 0; i < size; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;  // the first symbol's value is unused
  }
  for (uint32_t i = 0; i < size; ++i) offer(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const uint32_t left = best.left;
    const uint32_t right = next[left];
    // A symbol that was merged meanwhile is -1 or has another id.
    if (symbols[left] != best.left_id || right == size || symbols[right] != best.right_id) continue;
    symbols[left] = merge_of(best.left_id, best.right_id)->id;
    symbols[right] = -1;
    next[left] = next[right];
    if (next[left] != size) previous[next[left]] = left;
    offer(left);
    if (left > 0) offer(previous[left]);
  }
  std::erase(symbols, -1);
}

void BpeModel::merge(std::string_view word, std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    const Ids& whole = byte_level_ ? words_ : ids_;
    if (const auto found = whole.find(word); found != whole.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  std::vector<int32_t> symbols = first_symbols(word);
  merge_symbols(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

void BpeModel::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.size() > WordCache::kMaxBytes) return merge(word, ids);
  const uint64_t hash = WordCache::hash(word);
  if (cache_->find(word, hash, ids)) return;
  const size_t before = ids.size();
  merge(word, ids);
  cache_->store(word, hash, ids.data() + before, ids.size() - before);
}

}  // namespace draftsmith::data
