#include "infer/drafters/suffix_index.h"

#include <algorithm>

namespace draftsmith::infer {

// A step of splitmix64: n-grams are hashed from their last token backwards, so that each is its shorter one extended.
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

// The n-grams that end before the new token have a follower now.
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
    // Different n-grams may share a hash.
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

}  // namespace draftsmith::infer
