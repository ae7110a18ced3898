#include "data/tokenizers/word_cache.h"

#include <algorithm>
#include <cstring>

namespace draftsmith::data {

namespace {

// Holds a flag during its lifetime, if the flag was free.
class TryLock {
 public:
  explicit TryLock(std::atomic_flag& flag) : flag_(flag), held_(!flag.test_and_set(std::memory_order_acquire)) {}
  ~TryLock() {
    if (held_) flag_.clear(std::memory_order_release);
  }
  TryLock(const TryLock&) = delete;
  TryLock& operator=(const TryLock&) = delete;
  explicit operator bool() const { return held_; }

 private:
  std::atomic_flag& flag_;
  bool held_;
};

}  // namespace

WordCache::WordCache()
    : entries_(std::make_unique<Entry[]>(kEntries)), locks_(std::make_unique<std::atomic_flag[]>(kLocks)) {}

uint64_t WordCache::hash(std::string_view word) {
  // Mixes in eight bytes at a time by a multiplication, then applies the finaliser of splitmix64.
  uint64_t value = 0x9E3779B97F4A7C15ULL ^ word.size();
  size_t at = 0;
  for (; at + 8 <= word.size(); at += 8) {
    uint64_t part = 0;
    std::memcpy(&part, word.data() + at, 8);
    value = (value ^ part) * 0xBF58476D1CE4E5B9ULL;
    value ^= value >> 31;
  }
  uint64_t rest = 0;
  if (at < word.size()) std::memcpy(&rest, word.data() + at, word.size() - at);
  value = (value ^ rest) * 0x94D049BB133111EBULL;
  return value ^ value >> 29;
}

bool WordCache::find(std::string_view word, uint64_t hash, std::vector<int32_t>& ids) const {
  if (word.empty() || word.size() > kMaxBytes) return false;
  const TryLock lock(locks_[place(hash) % kLocks]);
  if (!lock) return false;
  const Entry& entry = entries_[place(hash)];
  if (entry.bytes != word.size() || std::memcmp(entry.word.data(), word.data(), word.size()) != 0) return false;
  ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
  return true;
}

void WordCache::store(std::string_view word, uint64_t hash, const int32_t* ids, size_t count) {
  if (word.empty() || word.size() > kMaxBytes || count > kMaxIds) return;
  const TryLock lock(locks_[place(hash) % kLocks]);
  if (!lock) return;
  Entry& entry = entries_[place(hash)];
  entry.bytes = static_cast<uint8_t>(word.size());
  entry.count = static_cast<uint8_t>(count);
  std::copy(word.begin(), word.end(), entry.word.begin());
  std::copy(ids, ids + count, entry.ids.begin());
}

}  // namespace draftsmith::data
