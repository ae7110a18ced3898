#include "data/tokenizers/bpe_tokenizer.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"

namespace draftsmith::data {

namespace {

class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeParts parts)
      : file_(std::move(parts.file)),
        files_(std::move(parts.files)),
        hash_(std::move(parts.hash)),
        model_(parts.model, file_.string()),
        normalizer_(std::move(parts.normalizer)),
        pre_tokenizer_(std::move(parts.pre_tokenizer)),
        decoder_(std::move(parts.decoder)),
        frame_(std::move(parts.frame)) {
    pieces_ = model_.pieces();
    for (AddedToken& token : parts.added) add(std::move(token));
    for (size_t id = 0; id < pieces_.size(); ++id) {
      const bool special = special_.contains(static_cast<int32_t>(id));
      texts_.push_back(special || pieces_[id].empty() ? TextPiece{TextPiece::Kind::kNothing, ""}
                                                      : decoder_.piece(pieces_[id]));
    }
    bos_ = id_of(parts.bos);
    eos_ = id_of(parts.eos);
    pad_ = id_of(parts.pad);
    if (parts.add_bos && bos_ >= 0) frame_.before.push_back(bos_);
    unk_ = model_.unk() >= 0 ? model_.unk() : id_of(parts.unk);
  }

  std::vector<int32_t> encode(std::string_view text) const override {
    if (const auto bad = invalid_utf8_offset(text)) {
      throw UserError({.where = file_.string(), .what = fmt::format("the text is not valid UTF-8 at byte {}", *bad)});
    }
    std::vector<int32_t> ids;
    ids.reserve(text.size() / 3 + 1);
    std::vector<TextSegment> segments;
    raw_finder_.split(text, segments);
    for (const TextSegment& segment : segments) {
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
    return decoder_.join(pieces);
  }

  int64_t vocabulary() const override { return static_cast<int64_t>(pieces_.size()); }
  int32_t pad() const override { return pad_; }
  int32_t eos() const override { return eos_; }
  int32_t unk() const override { return unk_; }
  int32_t bos() const override { return bos_; }
  std::string piece(int32_t id) const override { return pieces_[checked(id)]; }
  const std::string& hash() const override { return hash_; }
  const std::filesystem::path& file() const override { return file_; }
  std::vector<std::filesystem::path> files() const override { return files_; }
  TextFrame frame() const override { return frame_; }
  TextPiece text_piece(int32_t id) const override { return texts_[checked(id)]; }
  StreamRules stream_rules() const override { return decoder_.rules(); }

 private:
  // Returns the id that `tokenizers` gives to the next added token that is not in the vocabulary.
  int32_t next_id() const {
    const auto count = static_cast<int32_t>(model_.count());
    return std::max(count, last_added_ + 1);
  }

  void add(AddedToken token) {
    if (token.content.empty()) return;
    const auto known = added_.find(token.content);
    int32_t id = known != added_.end() ? known->second : model_.find(token.content);
    if (id < 0) id = next_id();
    if (token.id >= 0 && token.id != id) {
      throw UserError({.where = file_.string(),
                       .what = fmt::format("the added token '{}' has an unexpected id", token.content),
                       .expected = fmt::format("{}, by the vocabulary and the tokens added before it", id),
                       .found = fmt::format("{}", token.id)});
    }
    token.id = id;
    last_added_ = std::max(last_added_, id);
    added_.emplace(token.content, id);
    if (pieces_.size() <= static_cast<size_t>(id)) pieces_.resize(static_cast<size_t>(id) + 1);
    // `tokenizers` decodes a normalised token to its normalised text, and treats it as special only if both are equal.
    const std::string found = token.normalized ? normalizer_(token.content) : token.content;
    (token.normalized ? normalized_finder_ : raw_finder_).add(found, token);
    if (token.special && found == token.content) special_.insert(id);
    pieces_[static_cast<size_t>(id)] = found;
  }

  // Encodes text between the tokens that are found before normalisation.
  void encode_between(std::string_view text, bool at_start, std::vector<int32_t>& ids) const {
    if (normalizer_.empty()) return encode_normalized(text, at_start, ids);
    const std::string normalized = normalizer_(text);
    encode_normalized(normalized, at_start, ids);
  }

  void encode_normalized(std::string_view text, bool at_start, std::vector<int32_t>& ids) const {
    if (normalized_finder_.empty()) return encode_words(text, at_start, ids);
    std::vector<TextSegment> segments;
    normalized_finder_.split(text, segments);
    for (const TextSegment& segment : segments) {
      if (segment.id >= 0) {
        ids.push_back(segment.id);
      } else {
        encode_words(text.substr(segment.begin, segment.end - segment.begin), at_start && segment.begin == 0, ids);
      }
    }
  }

  void encode_words(std::string_view text, bool at_start, std::vector<int32_t>& ids) const {
    Words words;
    pre_tokenizer_.split(text, at_start, words);
    for (const std::string_view word : words.views) model_.encode(word, ids);
  }

  size_t checked(int32_t id) const {
    if (id >= 0 && static_cast<size_t>(id) < pieces_.size()) return static_cast<size_t>(id);
    throw UserError({.where = file_.string(),
                     .what = "token id outside the vocabulary",
                     .expected = fmt::format("0 to {}", vocabulary() - 1),
                     .found = fmt::format("{}", id)});
  }

  int32_t id_of(const std::string& content) const {
    if (content.empty()) return -1;
    const auto found = added_.find(content);
    return found != added_.end() ? found->second : model_.find(content);
  }

  std::filesystem::path file_;
  std::vector<std::filesystem::path> files_;
  std::string hash_;
  BpeModel model_;
  TextNormalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  TokenDecoder decoder_;
  TextFrame frame_;
  AddedTokenFinder raw_finder_;
  AddedTokenFinder normalized_finder_;
  std::unordered_map<std::string, int32_t> added_;
  std::unordered_set<int32_t> special_;
  int32_t last_added_ = -1;
  std::vector<std::string> pieces_;
  std::vector<TextPiece> texts_;  // text of each id
  int32_t bos_ = -1;
  int32_t eos_ = -1;
  int32_t unk_ = -1;
  int32_t pad_ = -1;
};

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeParts parts) {
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace draftsmith::data
