// Ids of words met before: text repeats its words, so most are never merged twice. One cache serves all threads; none
// ever waits for another.
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
  static constexpr size_t kMaxBytes = 30;  // longer words are rare and not kept
  static constexpr size_t kMaxIds = 12;

  WordCache();

  // Appends the ids of a word and returns true, or returns false when it is not there (or another thread is just
  // writing near it).
  bool find(std::string_view word, uint64_t hash, std::vector<int32_t>& ids) const;
  // Remembers a word, instead of another with the same place. Words too long and lists too long are not kept.
  void store(std::string_view word, uint64_t hash, const int32_t* ids, size_t count);

  static uint64_t hash(std::string_view word);

 private:
  static constexpr size_t kEntries = size_t{1} << 14;
  static constexpr size_t kLocks = 256;
  struct Entry {
    uint8_t bytes = 0;  // 0: unused
    uint8_t count = 0;
    std::array<char, kMaxBytes> word{};
    std::array<int32_t, kMaxIds> ids{};
  };

  static size_t place(uint64_t hash) { return hash % kEntries; }

  std::unique_ptr<Entry[]> entries_;
  std::unique_ptr<std::atomic_flag[]> locks_;
};

}  // namespace draftsmith::data
