// A teacher's next-token distributions for the targets of a corpus, stored so that students are distilled without
// running it (methods.md §2: from a top-k cache). An HDF5 file:
//
//   /teacher/ids             int32   [positions,k]  the k likeliest ids of each position, ascending
//   /teacher/log_probs       float16 [positions,k]  their log-probabilities, nats
//   /teacher/label_log_probs float16 [positions]    log-probability of the corpus's own token, among the k or not
//   /teacher/tail_log_mass   float16 [positions]    log of the probability of all ids that are none of these
//   /teacher/offsets         int64   [examples+1]   example i's positions are [offsets[i], offsets[i+1])
//   /truncation/...                                 what storing k of them costs the loss (TruncationError); optional
//   attributes of /: format "draftsmith teacher cache", format_version, k, vocabulary, examples, positions,
//                    temperature, tokenizer_hash, teacher_hash, corpus_hash; attributes of /provenance: text pairs
//
// A cache with k = V holds whole distributions: column v is id v, and ids, tail_log_mass and label_log_probs are left
// out. Probabilities are the teacher's at `temperature` (softmax of logits/T): of a top-k cache they serve that one
// only, since another would need the ids in the tail one by one. A log that fp16 cannot hold is stored as -65504, whose
// exponential is 0. The arrays over positions are contiguous and uncompressed: they are mapped, and a batch of examples
// is read where it lies.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "data/corpus/corpus.h"
#include "data/hdf5/shards.h"

namespace draftsmith::data {

// Losses between teacher p and student q for which the truncation error is measured, in this order.
inline constexpr std::array<const char*, 4> kTruncationLosses = {"forward KL", "reverse KL", "JSD(.5)", "TV"};

// What a loss read from caches of some k is, on a sample of positions.
struct TruncationRow {
  int64_t k = 0;
  double tail_mass = 0;            // mean probability outside the k ids and the label
  std::array<double, 4> losses{};  // means over positions: k ids, label, one bucket for the rest, in fp16
};

// The loss error from truncation: what a bucket for the rest hides, and what fp16 changes (alone in the row k = V).
struct TruncationError {
  int64_t positions = 0;          // of the sample
  std::string student{};          // whose q, for people
  std::array<double, 4> exact{};  // the losses over all ids, in fp64
  std::vector<TruncationRow> rows{};
};

struct TeacherCacheInfo {
  static constexpr int64_t kFormatVersion = 1;
  int64_t k = 0;           // ids of a position
  int64_t vocabulary = 0;  // V of the teacher's distributions; k = V: they are whole
  int64_t examples = 0;
  int64_t positions = 0;  // target tokens of all examples
  double temperature = 1;
  std::string tokenizer_hash{};
  std::string teacher_hash{};  // model::model_hash of the teacher's directory
  std::string corpus_hash{};   // corpus_hash()
  std::map<std::string, std::string> provenance{};
  std::optional<TruncationError> truncation{};

  bool whole() const { return k == vocabulary; }
};

// Bytes that a cache takes for each position.
int64_t teacher_bytes_per_position(int64_t k, int64_t vocabulary);

// Bytes of disk that making a cache of so many positions still takes: the shards of all but those that are `done`, and
// the merged file beside them.
uint64_t teacher_cache_space(const TeacherCacheInfo& info, int64_t positions, int64_t done);

// Of all token ids of a corpus and where its examples begin; what else its file says does not count.
std::string corpus_hash(const Corpus& corpus);

// The distributions at T positions. fp16 as its bits.
struct TeacherRows {
  std::span<const int32_t> ids{};               // [T,k]; empty when whole
  std::span<const uint16_t> log_probs{};        // [T,k]
  std::span<const uint16_t> label_log_probs{};  // [T]; empty when whole
  std::span<const uint16_t> tail_log_mass{};    // [T]; empty when whole
};

// Writes a cache example by example. Nothing appears under the final name before finish().
class TeacherCacheWriter {
 public:
  // `info` says how many positions will come. Errors: UserError, RunError as Hdf5Writer.
  TeacherCacheWriter(const std::filesystem::path& file, TeacherCacheInfo info);
  ~TeacherCacheWriter();
  void add(const TeacherRows& example);
  void finish(const std::map<std::string, std::string>& extra = {},
              const std::optional<TruncationError>& truncation = {});
  int64_t examples() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class TeacherCache {
 public:
  // Maps the file and checks all of it: format and version, shapes, offsets, ids in range and ascending,
  // log-probabilities finite and not above 0, the mass of each position 1 but for fp16's rounding. Errors: UserError
  // naming file and dataset.
  explicit TeacherCache(const std::filesystem::path& file);
  const TeacherCacheInfo& info() const { return info_; }
  const std::filesystem::path& file() const { return file_; }
  // Of one example, valid as long as the cache.
  TeacherRows rows(int64_t example) const;
  int64_t positions(int64_t example) const;

 private:
  std::filesystem::path file_;
  MappedFile mapping_;
  TeacherCacheInfo info_;
  std::vector<int64_t> offsets_;
  TeacherRows all_;
};

// What a cache says of itself, from its attributes alone. Errors: UserError when the file is none.
TeacherCacheInfo read_teacher_cache_info(const std::filesystem::path& file);

// Whether a file says that it is a teacher cache.
bool is_teacher_cache(const std::filesystem::path& file);

// Several lines, for `draftsmith inspect`: sizes, hashes, and the table of the loss error from truncation.
std::string describe_teacher_cache(const TeacherCacheInfo& info);

// A cache written in shards of some examples each (data/hdf5/shards.h).
//
//   ShardedTeacherCache writer(file, info);
//   while (writer.done() < examples) writer.add_shard(positions of the next ones, their rows);
//   writer.finish(...);
class ShardedTeacherCache {
 public:
  // `info` without counts. Errors: UserError for shards of another job or of other hashes, and for damaged ones.
  ShardedTeacherCache(const std::filesystem::path& file, TeacherCacheInfo info);
  int64_t done() const { return shards_.safe(); }
  // Whether there is nothing left to do but finish().
  bool merged() const { return shards_.merged(); }
  // The next examples, each with its rows.
  void add_shard(std::span<const TeacherRows> examples);
  // Merges all into the cache, which takes its size on disk once more until the shards are removed.
  void finish(const std::map<std::string, std::string>& extra, const std::optional<TruncationError>& truncation);

 private:
  TeacherCacheInfo info_;
  Shards shards_;
};

}  // namespace draftsmith::data
