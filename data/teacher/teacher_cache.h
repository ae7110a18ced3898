// A teacher's next-token distributions for the targets of a corpus, stored so that students can be distilled without
// the teacher (methods.md §2: from a top-k cache). An HDF5 file:
//
//   /teacher/ids             int32   [positions,k]  the k most likely ids of each position, ascending
//   /teacher/log_probs       float16 [positions,k]  their log-probabilities, nats
//   /teacher/label_log_probs float16 [positions]    log-probability of the corpus's token, also if it is among the k
//   /teacher/tail_log_mass   float16 [positions]    log of the probability of all ids but the k and the label
//   /teacher/offsets         int64   [examples+1]   example i's positions are [offsets[i], offsets[i+1])
//   /states/layers  int64    [L]        layers of the teacher whose hidden states are stored, rising; absent: none
//   /states/rows    bfloat16 [rows,D]   of an example: of each token that the decoder reads, prompts included, one row
//                                       a layer; then, of encoder-decoders, one row a source token
//   /states/offsets int64    [examples+1]  likewise
//   attributes of /: format "draftsmith teacher cache", format_version, k, vocabulary, examples, positions,
//                    temperature, tokenizer_hash, teacher_hash, corpus_hash, state_width (D); of /provenance: texts
//
// A cache with k = V holds whole distributions: column v is id v, and ids, tail_log_mass and label_log_probs are
// absent. Probabilities are the teacher's at `temperature` (softmax of logits/T), the only one that a top-k cache
// serves. A log that fp16 cannot hold is stored as -65504. Arrays over positions are contiguous and mapped.
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

namespace draftsmith::data {

inline constexpr Hdf5Format kTeacherCacheFormat{"draftsmith teacher cache", 1, "a teacher cache",
                                                "a stage of kind teacher-logits"};

// The teacher's hidden states in a cache, which features drafters read.
struct StateForm {
  std::vector<int64_t> layers{};  // 0: embedding output, i: output of decoder layer i; empty: no states
  int64_t width = 0;              // D
  int64_t rows = 0;               // of all examples

  bool any() const { return !layers.empty(); }
  int64_t columns() const { return std::ssize(layers) * width; }  // of a token that the decoder reads
};

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
  StateForm states{};

  bool whole() const { return k == vocabulary; }
  // Returns the bytes that a cache takes for each position's distribution.
  int64_t bytes_per_position() const;
};

// Returns a hash of all token ids of a corpus and of the beginnings of its examples, without other attributes.
std::string corpus_hash(const Corpus& corpus);

// The distributions at T positions, with fp16 values as bits, and the states of their example.
struct TeacherRows {
  std::span<const int32_t> ids{};               // [T,k]; empty when whole
  std::span<const uint16_t> log_probs{};        // [T,k]
  std::span<const uint16_t> label_log_probs{};  // [T]; empty when whole
  std::span<const uint16_t> tail_log_mass{};    // [T]; empty when whole
  std::span<const BFloat16> states{};           // [rows,D]

  // Returns the rows of the positions [first, first + count), without states.
  TeacherRows part(size_t first, size_t count, size_t k) const {
    TeacherRows rows{.log_probs = log_probs.subspan(first * k, count * k)};
    if (ids.empty()) return rows;
    rows.ids = ids.subspan(first * k, count * k);
    rows.label_log_probs = label_log_probs.subspan(first, count);
    rows.tail_log_mass = tail_log_mass.subspan(first, count);
    return rows;
  }
};

// Writes a cache of these examples and counts them itself. Errors: UserError and RunError as in Hdf5Writer.
void write_teacher_cache(const std::filesystem::path& file, const TeacherCacheInfo& info,
                         std::span<const TeacherRows> examples);
// Joins caches into one, in order. Errors: UserError for a damaged one.
void merge_teacher_caches(const std::vector<std::filesystem::path>& parts, const std::filesystem::path& file,
                          const TeacherCacheInfo& info);

class TeacherCache {
 public:
  // Maps the file and checks format and version, shapes, offsets, ids (in range, ascending), log-probabilities (finite,
  // not above 0) and the mass of each position (1 up to fp16's rounding). States are not read. Errors: UserError that
  // names file and dataset.
  explicit TeacherCache(const std::filesystem::path& file);
  const TeacherCacheInfo& info() const { return info_; }
  const std::filesystem::path& file() const { return file_; }
  // Returns the rows of one example, valid as long as the cache. Errors: UserError that names file and value for states
  // that are not finite.
  TeacherRows rows(int64_t example) const;
  int64_t positions(int64_t example) const;

 private:
  void map_states(const Hdf5Reader& input);

  std::filesystem::path file_;
  MappedFile mapping_;
  TeacherCacheInfo info_;
  std::span<const int64_t> offsets_, state_offsets_;
  TeacherRows all_;
};

// Returns sizes and hashes as lines of text for `draftsmith inspect`.
std::string describe_teacher_cache(const TeacherCacheInfo& info);

}  // namespace draftsmith::data
