#include "infer/drafters/prompt_lookup_drafter.h"

#include <algorithm>
#include <stdexcept>

namespace draftsmith::infer {

namespace {

class LoadedLookupDrafter final : public LoadedDrafter {
 public:
  explicit LoadedLookupDrafter(int64_t longest) : longest_(longest) {}

  std::string name() const override { return "lookup:" + std::to_string(longest_); }
  void check(const DraftTarget& /*target*/, Problems& /*problems*/) const override {}
  std::unique_ptr<Drafter> make(const DraftTarget& /*target*/) const override {
    return std::make_unique<PromptLookupDrafter>(longest_);
  }

 private:
  int64_t longest_;
};

}  // namespace

// Extends an n-gram's hash by the token before it (a step of splitmix64): n-grams are hashed from their last token
// backwards.
uint64_t SuffixIndex::extended(uint64_t hash, int64_t token) {
  uint64_t x = hash + static_cast<uint64_t>(token) + 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

size_t SuffixIndex::place(uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  while (slots_[at].end >= 0 && slots_[at].hash != hash) at = (at + 1) & mask;
  return at;
}

void SuffixIndex::put(uint64_t hash, int64_t end) {
  Slot& slot = slots_[place(hash)];
  if (slot.end < 0 && 2 * ++used_ > slots_.size()) {
    slot = {hash, end};
    return grow();
  }
  slot = {hash, end};
}

void SuffixIndex::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.end >= 0) slots_[place(slot.hash)] = slot;
  }
}

// Indexes the n-grams that end before the new token, which now follows them.
void SuffixIndex::add(int64_t token) {
  uint64_t hash = 0;
  const int64_t end = size() - 1;
  for (int64_t first = end; first >= text_ && end - first < longest_; --first) {
    hash = extended(hash, tokens_[static_cast<size_t>(first)]);
    put(hash, end);
  }
  tokens_.push_back(token);
  begins_.push_back(text_);
}

bool SuffixIndex::equal(int64_t end, int64_t other, int64_t length) const {
  if (other - length + 1 < begins_[static_cast<size_t>(other)]) return false;
  const auto last = tokens_.begin() + end + 1;
  return std::equal(last - length, last, tokens_.begin() + other + 1 - length);
}

int64_t SuffixIndex::follower() const {
  uint64_t hash = 0;
  int64_t found = -1;
  const int64_t end = size() - 1;
  for (int64_t first = end; first >= text_ && end - first < longest_; --first) {
    hash = extended(hash, tokens_[static_cast<size_t>(first)]);
    const Slot& slot = slots_[place(hash)];
    // Compares the tokens, because different n-grams may share a hash.
    if (slot.end < 0 || !equal(end, slot.end, end - first + 1)) break;
    found = slot.end + 1;
  }
  return found;
}

int64_t SuffixIndex::token(int64_t position) const {
  const auto at = static_cast<size_t>(position);
  if (position >= size() || (position > 0 && begins_[at] != begins_[at - 1])) return -1;
  return tokens_[at];
}

void PromptLookupDrafter::Text::add(const Row& row) {
  for (; committed < row.length(); ++committed) index.add(row.tokens[static_cast<size_t>(committed)]);
}

void PromptLookupDrafter::prefill(const DraftBegin& begin) {
  const bool encoder_decoder = begin.target_encoder != nullptr;
  texts_.clear();
  texts_.reserve(begin.rows.size());
  for (size_t b = 0; b < begin.rows.size(); ++b) {
    if (b % static_cast<size_t>(begin.samples) != 0) {  // another sample of the same source
      texts_.push_back(texts_.back());
      continue;
    }
    const Row& row = begin.rows[b];
    Text& text = texts_.emplace_back(Text{.index = SuffixIndex(longest_)});
    for (const int64_t token : row.source) text.index.add(token);
    text.index.begin_text();
    if (encoder_decoder) text.committed = row.prefix;  // the start token means nothing in a text
    text.add(row);
  }
}

// Returns the next token of the copy, which may go on into the tokens that it has drafted itself.
int64_t PromptLookupDrafter::copied(const Text& text, std::span<const int64_t> drafted) {
  if (text.match < 0) return kNoProposal;
  const int64_t position = text.match + static_cast<int64_t>(drafted.size());
  const int64_t beyond = position - text.index.size();
  if (beyond >= 0) return drafted[static_cast<size_t>(beyond)];
  const int64_t token = text.index.token(position);
  return token < 0 ? kNoProposal : token;
}

std::optional<std::vector<int64_t>> PromptLookupDrafter::next_tokens(const DraftRequest& request) {
  std::vector<int64_t> tokens(request.rows.size(), kNoProposal);
  for (size_t b = 0; b < tokens.size(); ++b) {
    if (request.active[b] == 0) continue;
    if (request.on_host[b].empty()) texts_[b].match = texts_[b].index.follower();
    tokens[b] = copied(texts_[b], request.on_host[b]);
  }
  return tokens;
}

at::Tensor PromptLookupDrafter::next_logits(const DraftRequest&) {
  throw std::logic_error("prompt look-up has no logits");
}

void PromptLookupDrafter::observe(const DraftObservation& observation) {
  for (size_t b = 0; b < texts_.size(); ++b) texts_[b].add(observation.rows[b]);
}

void PromptLookupDrafter::select_rows(std::span<const int64_t> rows) {
  keep_rows(texts_, rows);
}

SharedDrafter lookup_drafter(int64_t longest) {
  return std::make_shared<LoadedLookupDrafter>(longest);
}

}  // namespace draftsmith::infer
