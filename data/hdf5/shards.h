// Files that take hours to make, written shard by shard, so that a killed run loses at most one. Which shards there
// are, what they are called and when they go; what is in them is their owner's business (data/corpus/sharded_corpus.h,
// data/teacher/teacher_cache.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace draftsmith::data {

// The provenance that says which job makes a file, for those that are made in several runs.
inline constexpr const char* kJob = "job";

// What tells a shard from those of the job that goes on, and both sides' values.
struct ShardDifference {
  std::string what;
  std::string own;
  std::string found;
};

// UserError: the shard is one of another job.
[[noreturn]] void refuse_shard(const std::filesystem::path& shard, const ShardDifference& difference);

// The difference between two jobs' provenances where same_job() says that they are two; shows what is not the same.
ShardDifference job_difference(const std::map<std::string, std::string>& own,
                               const std::map<std::string, std::string>& found);

// Whether what was found is of the same job: told by kJob, without it in `own` by the whole provenance. What has no
// kJob itself is taken for a file of an earlier version's.
bool same_job(const std::map<std::string, std::string>& own, const std::map<std::string, std::string>& found);

// Shards of FILE.h5 are FILE.shard-00000.h5, FILE.shard-00001.h5, ... beside it, each a whole file that appeared by a
// rename. They are merged into FILE.h5 at the end, and removed.
class Shards {
 public:
  // Opens and checks a shard and gives its examples. Errors: UserError for one of another job (refuse_shard) or a
  // damaged one.
  using Check = std::function<int64_t(const std::filesystem::path&)>;
  // Examples of a merged file when it is one of this job, else -1: it is there to be replaced.
  using CheckMerged = std::function<int64_t(const std::filesystem::path&)>;

  // Finds what an earlier run left: its shards or, where it had merged them already, its file.
  Shards(std::filesystem::path file, const Check& check, const CheckMerged& check_merged);

  const std::filesystem::path& file() const { return file_; }
  // An earlier run had come to the end but for removing its shards.
  bool merged() const { return merged_; }
  // Examples on disk in whole shards: what a kill at this moment would keep.
  int64_t safe() const { return safe_; }
  // All of them in order: the shards, or the merged file.
  std::vector<std::filesystem::path> parts() const;
  // Where the next shard is to be written.
  std::filesystem::path next() const;
  // The file next() is whole and has so many examples.
  void add(int64_t examples);
  // After they were merged.
  void remove();

 private:
  std::filesystem::path file_;
  std::vector<std::filesystem::path> shards_;  // whole ones on disk
  bool merged_ = false;
  int64_t safe_ = 0;
};

}  // namespace draftsmith::data
