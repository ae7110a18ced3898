// Finds where the end of a growing text occurred before, for prompt look-up: an index of the last place of every n-gram
// up to a length, by hash, with constant work for each token added and each search.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace draftsmith::infer {

// Texts one after the other; n-grams do not cross from one text into the next. Only adding, never taking back: drafted
// tokens do not belong here before they are committed.
class SuffixIndex {
 public:
  // n-grams of 1..longest tokens.
  explicit SuffixIndex(int64_t longest) : longest_(longest), slots_(kFewest) {}

  // What is added from here on is another text.
  void begin_text() { text_ = size(); }
  void add(int64_t token);
  // The position behind the last earlier occurrence of the longest possible suffix of the current text, where a token
  // of the same text follows it; -1: even the last token is new.
  int64_t follower() const;
  // The token at a position of follower() or one of those after it in its text; -1 where that text ends.
  int64_t token(int64_t position) const;
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  static constexpr size_t kFewest = 64;
  struct Slot {
    uint64_t hash = 0;
    int64_t end = -1;  // position of the n-gram's last token; -1: free
  };
  static uint64_t extended(uint64_t hash, int64_t token);
  // Where the hash is or would be.
  size_t place(uint64_t hash) const;
  void put(uint64_t hash, int64_t end);
  void grow();
  bool equal(int64_t end, int64_t other, int64_t length) const;

  int64_t longest_;
  int64_t text_ = 0;  // where the current text begins
  std::vector<int64_t> tokens_;
  std::vector<int64_t> begins_;  // of the text that each token belongs to
  std::vector<Slot> slots_;      // a power of two, at most half of them used
  size_t used_ = 0;
};

}  // namespace draftsmith::infer
