// Cache of the ids of words, since text repeats words. All threads share one cache, and no thread waits for another.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace draftsmith::data {

class WordCache {
 public:
  static constexpr size_t kMaxBytes = 30;  // longer words are rare and not cached
  static constexpr size_t kMaxIds = 12;

  WordCache();

  // Appends the ids of a cached word. Returns false if the word is not cached or another thread is writing a word with
  // the same lock.
  bool find(std::string_view word, uint64_t hash, std::vector<int32_t>& ids) const;
  // Caches a word in place of another word with the same entry. Ignores words and lists that are too long.
  void store(std::string_view word, uint64_t hash, const int32_t* ids, size_t count);

  static uint64_t hash(std::string_view word);

 private:
  static constexpr size_t kEntries = size_t{1} << 14;
  static constexpr size_t kLocks = 256;
  struct Entry {
    uint8_t bytes = 0;  // 0: unused entry
    uint8_t count = 0;
    std::array<char, kMaxBytes> word{};
    std::array<int32_t, kMaxIds> ids{};
  };

  static size_t place(uint64_t hash) { return hash % kEntries; }

  std::unique_ptr<Entry[]> entries_;
  std::unique_ptr<std::atomic_flag[]> locks_;
};

}  // namespace draftsmith::data
