#include "data/tokenizers/bpe.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"

namespace draftsmith::data {
namespace {

std::string quoted(const std::string& piece) {
  return "'" + piece.substr(0, 60) + "'";
}

// The pieces of a model and their ids.
class PieceModel {
 public:
  virtual ~PieceModel() = default;
  // Appends the ids of one word.
  virtual void encode(std::string_view word, std::vector<int32_t>& ids) const = 0;

  // Returns the pieces by id; the piece of an unused id is empty.
  const std::vector<std::string>& pieces() const { return pieces_; }
  // Returns the id of a piece as the file writes it, or -1.
  int32_t find(std::string_view piece) const {
    const auto found = ids_.find(piece);
    return found == ids_.end() ? -1 : found->second;
  }
  int32_t unk() const { return unk_; }
  // Returns the number of pieces; ids may have gaps.
  int64_t count() const { return static_cast<int64_t>(ids_.size()); }

 protected:
  PieceModel(const BpeDescription& description, const std::string& where) : byte_level_(description.byte_level) {
    read_pieces(description, where);
    if (description.unk_token.empty()) return;
    unk_ = find(description.unk_token);
    if (unk_ < 0) {
      throw UserError({where, "the unknown token is not in the vocabulary", "a piece of the vocabulary as unk_token",
                       quoted(description.unk_token), ""});
    }
  }

  // Appends the pieces of a text's bytes. Returns false, and appends none, if a byte has no piece.
  bool add_bytes(std::string_view text, std::vector<int32_t>& ids) const {
    const auto id = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
    if (std::any_of(text.begin(), text.end(), [&](char c) { return id(c) < 0; })) return false;
    for (const char c : text) ids.push_back(id(c));
    return true;
  }

  bool byte_level_;
  int32_t unk_ = -1;
  std::array<int32_t, 256> byte_ids_{};

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Ids = std::unordered_map<std::string, int32_t, Hash, std::equal_to<>>;

  void read_pieces(const BpeDescription& description, const std::string& where) {
    const auto refuse = [&](const std::string& what, const std::string& piece, int32_t id) {
      throw UserError({where, what, fmt::format("each piece once, ids from 0 to {}, each once", kMaxTokenId),
                       fmt::format("{} with id {}", quoted(piece), id), ""});
    };
    std::vector<bool> taken;
    ids_.reserve(description.pieces.size());
    for (const auto& [piece, id] : description.pieces) {
      if (id < 0 || id > kMaxTokenId) refuse("a token id out of range", piece, id);
      const auto index = static_cast<size_t>(id);
      if (index >= pieces_.size()) {
        pieces_.resize(index + 1);
        taken.resize(index + 1);
      }
      if (taken[index]) refuse("a token id given twice", piece, id);
      taken[index] = true;
      pieces_[index] = piece;
      if (!ids_.emplace(piece, id).second) refuse("a piece given twice", piece, id);
    }
    for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
      const char c = static_cast<char>(byte);
      byte_ids_[byte] = find(byte_level_ ? piece_of_bytes({&c, 1}) : fmt::format("<0x{:02X}>", byte));
    }
  }

  std::vector<std::string> pieces_;
  Ids ids_;  // by piece as written
};

// Byte pair encoding of one word: merges the adjacent pair with the best rank, the leftmost among equals, until no
// merge applies. Byte-level models (Radford et al. 2019) start from bytes. Other models start from characters; a
// character without a piece becomes its bytes or <unk>.
class BpeModel : public PieceModel {
 public:
  BpeModel(const BpeDescription& description, const std::string& where)
      : PieceModel(description, where),
        fuse_unk_(description.fuse_unk),
        byte_fallback_(description.byte_fallback),
        ignore_merges_(description.ignore_merges) {
    read_merges(description, where);
  }

  void encode(std::string_view word, std::vector<int32_t>& ids) const override {
    if (ignore_merges_) {
      const int32_t whole = byte_level_ ? find(piece_of_bytes(word)) : find(word);
      if (whole >= 0) return ids.push_back(whole);
    }
    std::vector<int32_t> symbols = first_symbols(word);
    merge_symbols(symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  }

 private:
  struct Merge {
    uint32_t rank = 0;
    int32_t id = -1;
  };
  static uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }

  void read_merges(const BpeDescription& description, const std::string& where) {
    merges_.reserve(description.merges.size());
    for (size_t rank = 0; rank < description.merges.size(); ++rank) {
      const auto& [left, right] = description.merges[rank];
      for (const std::string& piece : {left, right, left + right}) {
        if (find(piece) >= 0) continue;
        throw UserError({where, fmt::format("merge {} needs a piece that is not in the vocabulary", rank + 1),
                         fmt::format("{}, {} and their union in the vocabulary", quoted(left), quoted(right)),
                         "no piece " + quoted(piece), ""});
      }
      // The last rank of a repeated pair counts, as in `tokenizers`.
      merges_[pair_of(find(left), find(right))] = {static_cast<uint32_t>(rank), find(left + right)};
    }
  }

  const Merge* merge_of(int32_t left, int32_t right) const {
    const auto found = merges_.find(pair_of(left, right));
    return found == merges_.end() ? nullptr : &found->second;
  }

  std::vector<int32_t> first_symbols(std::string_view word) const {
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

  void merge_symbols(std::vector<int32_t>& symbols) const {
    struct Candidate {
      uint32_t rank;
      uint32_t left;  // index of the left symbol
      int32_t left_id;
      int32_t right_id;
      bool operator>(const Candidate& other) const {
        return rank != other.rank ? rank > other.rank : left > other.left;
      }
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

  bool fuse_unk_;
  bool byte_fallback_;
  bool ignore_merges_;
  std::unordered_map<uint64_t, Merge> merges_;  // by pair
};

// Divides a word into the pieces with the largest sum of scores, the first found of equals. A character without a piece
// is <unk>, one for adjacent ones, or its bytes.
class UnigramModel : public PieceModel {
 public:
  UnigramModel(const BpeDescription& description, const std::string& where)
      : PieceModel(description, where), scores_(description.scores), byte_fallback_(description.byte_fallback) {
    constexpr double kUnknownPenalty = 10;
    if (unk_ < 0 || scores_.size() != pieces().size()) {
      throw UserError({where, "the unigram model is incomplete",
                       "an unknown token (unk_id), and a score for each piece",
                       fmt::format("unk_id {}, {} scores, {} pieces", unk_, scores_.size(), pieces().size()), ""});
    }
    unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
    for (const auto& [piece, id] : description.pieces) {
      if (!piece.empty()) sorted_.emplace_back(piece, id);
    }
    std::sort(sorted_.begin(), sorted_.end());
  }

  void encode(std::string_view word, std::vector<int32_t>& ids) const override {
    std::vector<std::string_view> parts;  // from the last
    const std::vector<Step> steps = best_steps(word);
    bool unknown = false;
    for (size_t end = word.size(); end > 0; end = steps[end].begin) {
      const Step& step = steps[end];
      std::string_view part = word.substr(step.begin, end - step.begin);
      if (unknown && step.id == unk_) {
        part = word.substr(step.begin, part.size() + parts.back().size());
        parts.pop_back();
      }
      unknown = step.id == unk_;
      parts.push_back(part);
    }
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      const int32_t id = find(*part);
      if (id < 0 && byte_fallback_ && add_bytes(*part, ids)) continue;
      ids.push_back(id < 0 ? unk_ : id);
    }
  }

 private:
  // The best way to the end of a prefix: its last piece, and the score of all.
  struct Step {
    double score = 0;
    size_t begin = 0;
    int32_t id = -1;  // -1: no way was found yet
  };

  std::vector<Step> best_steps(std::string_view word) const {
    std::vector<Step> steps(word.size() + 1);
    for (size_t at = 0; at < word.size();) {
      const double here = steps[at].score;
      const auto offer = [&](size_t length, int32_t id, double score) {
        Step& step = steps[at + length];
        if (step.id < 0 || here + score > step.score) step = {here + score, at, id};
      };
      const size_t character = code_point_at(word, at).length;
      bool known = false;
      visit_prefixes(word.substr(at), [&](size_t length, int32_t id) {
        known = known || length == character;
        offer(length, id, scores_[static_cast<size_t>(id)]);
      });
      if (!known) offer(character, unk_, unknown_score_);
      at += character;
    }
    return steps;
  }

  // Calls visit(length, id) for each piece that the text begins with, the shortest first.
  template <class Visit>
  void visit_prefixes(std::string_view text, const Visit& visit) const {
    auto first = sorted_.begin();
    auto last = sorted_.end();
    for (size_t i = 0; i < text.size() && first != last; ++i) {
      // All pieces in [first,last) begin with text[0,i) and are longer.
      const auto byte_of = [i](const auto& entry) { return static_cast<uint8_t>(entry.first[i]); };
      const auto range = std::ranges::equal_range(first, last, static_cast<uint8_t>(text[i]), {}, byte_of);
      first = range.begin();
      last = range.end();
      if (first == last || first->first.size() != i + 1) continue;
      visit(i + 1, first->second);
      ++first;
    }
  }

  std::vector<double> scores_;  // by id
  bool byte_fallback_;
  double unknown_score_ = 0;
  std::vector<std::pair<std::string, int32_t>> sorted_;
};

std::unique_ptr<PieceModel> make_piece_model(const BpeDescription& description, const std::string& where) {
  if (description.scores.empty()) return std::make_unique<BpeModel>(description, where);
  return std::make_unique<UnigramModel>(description, where);
}

class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeParts parts)
      : parts_(std::move(parts)), model_(make_piece_model(parts_.model, parts_.file.string())) {
    parts_.model = {};
    pieces_ = model_->pieces();
    for (AddedToken& token : parts_.added) add(std::move(token));
    for (size_t id = 0; id < pieces_.size(); ++id) {
      const bool special = special_.contains(static_cast<int32_t>(id));
      texts_.push_back(special || pieces_[id].empty() ? TextPiece{TextPiece::Kind::kNothing, ""}
                                                      : parts_.decoder.piece(pieces_[id]));
    }
    file_ = parts_.file;
    hash_ = parts_.hash;
    const int32_t unk = parts_.decoder.byte_level ? -1 : id_of(parts_.unk);  // bytes are never unknown
    special_ids_ = {id_of(parts_.pad), id_of(parts_.eos), model_->unk() >= 0 ? model_->unk() : unk, id_of(parts_.bos)};
    if (parts_.add_bos && bos() >= 0) parts_.frame.before.push_back(bos());
    if (parts_.add_eos && eos() >= 0) parts_.frame.after.push_back(eos());
    for (const auto* ids : {&parts_.frame.before, &parts_.frame.after}) {
      const auto absent = std::ranges::find_if(*ids, [this](int32_t id) { return id >= vocabulary(); });
      if (absent == ids->end()) continue;
      throw UserError({file_.string(), "its post-processor adds an id that it has no token of",
                       fmt::format("an id below {}", vocabulary()), std::to_string(*absent), ""});
    }
  }

  std::vector<int32_t> encode(std::string_view text) const override {
    if (const auto bad = invalid_utf8_offset(text)) {
      throw UserError({parts_.file.string(), fmt::format("the text is not valid UTF-8 at byte {}", *bad), "", "", ""});
    }
    std::vector<int32_t> ids;
    ids.reserve(text.size() / 3 + 1);
    for (const AddedTokenFinder::Segment& segment : raw_finder_.split(text)) {
      if (segment.id >= 0) {
        ids.push_back(segment.id);
      } else {
        encode_between(text.substr(segment.begin, segment.end - segment.begin), segment.begin == 0, ids);
      }
    }
    return ids;
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::vector<const TextPiece*> pieces;
    pieces.reserve(ids.size());
    for (const int32_t id : ids) {
      const TextPiece& text = texts_[checked(id)];
      if (text.kind != TextPiece::Kind::kNothing) pieces.push_back(&text);
    }
    return parts_.decoder.join(pieces);
  }

  int64_t vocabulary() const override { return static_cast<int64_t>(pieces_.size()); }
  int64_t text_ids() const override { return std::ssize(model_->pieces()); }
  std::string piece(int32_t id) const override { return pieces_[checked(id)]; }
  TextFrame frame() const override { return parts_.frame; }
  TextPiece text_piece(int32_t id) const override { return texts_[checked(id)]; }
  StreamRules stream_rules() const override { return parts_.decoder.rules(); }

 private:
  // Returns the id that `tokenizers` gives to the next added token that is not in the vocabulary.
  int32_t next_id() const {
    const auto count = static_cast<int32_t>(model_->count());
    return std::max(count, last_added_ + 1);
  }

  void add(AddedToken token) {
    if (token.content.empty()) return;
    const auto known = added_.find(token.content);
    int32_t id = known != added_.end() ? known->second : model_->find(token.content);
    if (id < 0) id = next_id();
    if (token.id >= 0 && token.id != id) {
      throw UserError({parts_.file.string(), fmt::format("the added token '{}' has an unexpected id", token.content),
                       fmt::format("{}, by the vocabulary and the tokens added before it", id),
                       fmt::format("{}", token.id), ""});
    }
    token.id = id;
    last_added_ = std::max(last_added_, id);
    added_.emplace(token.content, id);
    if (pieces_.size() <= static_cast<size_t>(id)) pieces_.resize(static_cast<size_t>(id) + 1);
    // `tokenizers` decodes a normalised token to its normalised text, and treats it as special only if both are equal.
    const std::string found = token.normalized ? normalize(parts_.normalizer, token.content) : token.content;
    (token.normalized ? normalized_finder_ : raw_finder_).add(found, token);
    if (token.special && found == token.content) special_.insert(id);
    pieces_[static_cast<size_t>(id)] = found;
  }

  // Encodes text between the tokens that are found before normalisation.
  void encode_between(std::string_view text, bool at_start, std::vector<int32_t>& ids) const {
    const std::string normalized = normalize(parts_.normalizer, text);
    for (const AddedTokenFinder::Segment& segment : normalized_finder_.split(normalized)) {
      if (segment.id >= 0) {
        ids.push_back(segment.id);
        continue;
      }
      const auto part = std::string_view(normalized).substr(segment.begin, segment.end - segment.begin);
      const Words words = split_words(parts_.pre_tokenizer, part, at_start && segment.begin == 0);
      for (const std::string_view word : words.views) model_->encode(word, ids);
    }
  }

  int32_t id_of(const std::string& content) const {
    if (content.empty()) return -1;
    const auto found = added_.find(content);
    return found != added_.end() ? found->second : model_->find(content);
  }

  BpeParts parts_;  // but for the model
  std::unique_ptr<PieceModel> model_;
  AddedTokenFinder raw_finder_;
  AddedTokenFinder normalized_finder_;
  std::unordered_map<std::string, int32_t> added_;
  std::unordered_set<int32_t> special_;
  int32_t last_added_ = -1;
  std::vector<std::string> pieces_;
  std::vector<TextPiece> texts_;  // text of each id
};

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeParts parts) {
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace draftsmith::data
