// What the tests of teacher caches share: values of a cache of two ids, and one written.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/teacher/teacher_cache.h"

namespace draftsmith::data {

// Bits of halves whose exponentials add up to 1: log(1/2), log(1/4), log(1/8).
inline constexpr uint16_t kHalf = 0xb98c;
inline constexpr uint16_t kQuarter = 0xbd8c;
inline constexpr uint16_t kEighth = 0xc029;
inline constexpr uint16_t kLowest = 0xfbff;  // -65504

inline TeacherCacheInfo info_of(int64_t k, int64_t positions, const std::string& job = "job one") {
  return {.k = k,
          .vocabulary = 4,
          .positions = positions,
          .tokenizer_hash = "aaaa",
          .teacher_hash = "bbbb",
          .corpus_hash = "cccc",
          .provenance = {{kJob, job}}};
}

// Values of one example of a top-2 cache: `positions` times ids 1 and 3.
struct CacheExample {
  explicit CacheExample(size_t positions) : labels(positions, kEighth), tails(positions, kEighth) {
    for (size_t i = 0; i < 2 * positions; ++i) {
      ids.push_back(i % 2 == 0 ? 1 : 3);
      log_probs.push_back(i % 2 == 0 ? kHalf : kQuarter);
    }
  }
  TeacherRows rows() const { return {ids, log_probs, labels, tails}; }

  std::vector<int32_t> ids;
  std::vector<uint16_t> log_probs, labels, tails;
};

inline void write_cache(const std::filesystem::path& file, const TeacherRows& rows, int64_t k = 2) {
  TeacherCacheWriter writer(file, info_of(k, static_cast<int64_t>(rows.log_probs.size()) / k));
  writer.add(rows);
  writer.finish();
}

}  // namespace draftsmith::data
