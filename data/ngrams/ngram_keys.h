// Packs n-grams into numbers and counts them by sorting, in memory if they fit, else in sorted parts on disk that are
// merged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

namespace draftsmith::data {

// Three symbols in one number; numbers are ordered like (before, last, next).
constexpr int64_t kNgramSymbolBits = 21;
constexpr int64_t kNgramRowEnd = (int64_t{1} << kNgramSymbolBits) - 1;  // symbol after a row's last token
constexpr int64_t kMostNgramIds = kNgramRowEnd - 1;                     // one symbol is the beginning of rows

struct NgramKey {
  int64_t before = 0;
  int64_t last = 0;
  int64_t next = 0;

  uint64_t packed() const {
    return static_cast<uint64_t>(((before << kNgramSymbolBits | last) << kNgramSymbolBits) | next);
  }
  static NgramKey unpacked(uint64_t key) {
    const auto symbol = [key](int64_t place) {
      return static_cast<int64_t>(key >> static_cast<uint64_t>(place * kNgramSymbolBits)) & kNgramRowEnd;
    };
    return {symbol(2), symbol(1), symbol(0)};
  }
};

class NgramSorter {
 public:
  // Sorts `keys_at_once` keys in memory and writes the parts into `folder`, which must exist.
  NgramSorter(std::filesystem::path folder, size_t keys_at_once);
  // Adds a key. Errors: RunError if a part cannot be written.
  void add(const NgramKey& key) {
    keys_.push_back(key.packed());
    if (keys_.size() == keys_at_once_) spill();
  }
  // Calls visit(key, count) once for each distinct key, in ascending order. Call it once only.
  void finish(const std::function<void(const NgramKey&, int64_t)>& visit);

 private:
  struct Counted {
    uint64_t key;
    int64_t count;
  };
  void sort_keys(const std::function<void(Counted)>& visit);
  void spill();
  void merge(const std::function<void(const NgramKey&, int64_t)>& visit) const;

  std::filesystem::path folder_;
  size_t keys_at_once_;
  std::vector<uint64_t> keys_;
  std::vector<std::filesystem::path> parts_;
};

}  // namespace draftsmith::data
