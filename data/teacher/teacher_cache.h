// A teacher's next-token distributions for the targets of a corpus, stored so that students can be distilled without
// the teacher (methods.md §2: from a top-k cache). An HDF5 file:
//
//   /teacher/ids             int32   [positions,k]  the k most likely ids of each position, ascending
//   /teacher/log_probs       float16 [positions,k]  their log-probabilities, nats
//   /teacher/label_log_probs float16 [positions]    log-probability of the corpus's token, also if it is among the k
//   /teacher/tail_log_mass   float16 [positions]    log of the probability of all ids but the k and the label
//   /teacher/offsets         int64   [examples+1]   example i's positions are [offsets[i], offsets[i+1])
//   attributes of /: format "draftsmith teacher cache", format_version, k, vocabulary, examples, positions,
//                    temperature, tokenizer_hash, teacher_hash, corpus_hash; attributes of /provenance: text pairs
//
// A cache with k = V holds whole distributions: column v is id v, and ids, tail_log_mass and label_log_probs are
// absent. Probabilities are the teacher's at `temperature` (softmax of logits/T), the only one that a top-k cache
// serves. A log that fp16 cannot hold is stored as -65504. Arrays over positions are contiguous and read from mapped
// memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "data/corpus/corpus.h"
#include "data/hdf5/hdf5.h"
#include "data/hdf5/shards.h"

namespace draftsmith::data {

struct TeacherCacheInfo {
  int64_t k = 0;           // ids of a position
  int64_t vocabulary = 0;  // V of the teacher's distributions; k = V: whole distributions
  int64_t examples = 0;
  int64_t positions = 0;  // target tokens of all examples
  double temperature = 1;
  std::string tokenizer_hash{};
  std::string teacher_hash{};  // model::model_hash of the teacher's directory
  std::string corpus_hash{};   // corpus_hash()
  std::map<std::string, std::string> provenance{};

  bool whole() const { return k == vocabulary; }
  // Returns the bytes that a cache takes for each position.
  int64_t bytes_per_position() const;
};

// Returns a hash of all token ids of a corpus and of the beginnings of its examples, without other attributes.
std::string corpus_hash(const Corpus& corpus);

// The distributions at T positions, with fp16 values as bits.
struct TeacherRows {
  std::span<const int32_t> ids{};               // [T,k]; empty when whole
  std::span<const uint16_t> log_probs{};        // [T,k]
  std::span<const uint16_t> label_log_probs{};  // [T]; empty when whole
  std::span<const uint16_t> tail_log_mass{};    // [T]; empty when whole

  // Returns the rows of the positions [first, first + count).
  TeacherRows part(size_t first, size_t count, size_t k) const {
    TeacherRows rows{.log_probs = log_probs.subspan(first * k, count * k)};
    if (ids.empty()) return rows;
    rows.ids = ids.subspan(first * k, count * k);
    rows.label_log_probs = label_log_probs.subspan(first, count);
    rows.tail_log_mass = tail_log_mass.subspan(first, count);
    return rows;
  }
};

// Writes a cache. The file has its final name only after finish().
class TeacherCacheWriter {
 public:
  // `info` gives the number of positions. Errors: UserError and RunError as in Hdf5Writer.
  TeacherCacheWriter(const std::filesystem::path& file, TeacherCacheInfo info);
  // Adds examples of these numbers of positions.
  void add(const TeacherRows& rows, std::span<const int64_t> lengths);
  void finish();

 private:
  Hdf5Writer output_;
  TeacherCacheInfo info_;
  size_t ids_ = 0;  // datasets of the output
  size_t log_probs_ = 0;
  size_t labels_ = 0;
  size_t tails_ = 0;
  std::vector<int64_t> offsets_ = {0};
};

class TeacherCache {
 public:
  // Maps the file and checks format and version, shapes and offsets. Errors: UserError that names file and dataset.
  explicit TeacherCache(const std::filesystem::path& file);
  const TeacherCacheInfo& info() const { return info_; }
  const std::filesystem::path& file() const { return file_; }
  // Returns the rows of some examples from one on, valid as long as the cache.
  TeacherRows rows(int64_t example, int64_t count = 1) const;
  int64_t positions(int64_t example) const;

 private:
  std::filesystem::path file_;
  MappedFile mapping_;
  TeacherCacheInfo info_;
  std::vector<int64_t> offsets_;
  TeacherRows all_;
};

// Returns whether a file is a teacher cache by its attribute `format`.
bool is_teacher_cache(const std::filesystem::path& file);

// Returns sizes and hashes as lines of text for `draftsmith inspect`.
std::string describe_teacher_cache(const TeacherCacheInfo& info);

// Writes a cache in shards of some examples each (data/hdf5/shards.h): add_shard() for each missing range, then
// finish().
class ShardedTeacherCache {
 public:
  // Ignores the counts of `info`, whose provenance names the job (kJob). Errors: UserError for shards of another job,
  // and damaged ones.
  ShardedTeacherCache(const std::filesystem::path& file, TeacherCacheInfo info, int64_t examples);
  // Returns the ranges of at most `shard_examples` that are still to be written.
  std::vector<ShardRange> missing(int64_t shard_examples) const { return shards_.missing(shard_examples); }
  // Returns whether only finish() is left to do.
  bool merged() const { return shards_.merged(); }
  // Writes the rows of a range's examples, which have these numbers of positions. Errors: std::logic_error for another
  // number of examples, and for a range that is not missing.
  void add_shard(const ShardRange& range, const TeacherRows& rows, std::span<const int64_t> lengths);
  // Registers a shard of a missing range that another process has written. Errors: std::logic_error for a range that is
  // not missing.
  void adopt(const ShardRange& range) { shards_.add(range); }
  // Merges the shards into the cache. Until the shards are removed, both take space on disk. Errors: std::logic_error
  // if a shard is missing.
  void finish();

 private:
  TeacherCacheInfo info_;
  Shards shards_;
};

}  // namespace draftsmith::data
