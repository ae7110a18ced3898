// Manages the shards of a file that takes hours to make, so that a killed run loses at most one shard: their names,
// which exist, and when they are removed. The content is defined by data/corpus/sharded_corpus.h and
// data/teacher/teacher_cache.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace draftsmith::data {

// Key of the provenance that identifies the job that makes a file, for files that are made in several runs.
inline constexpr const char* kJob = "job";

// The property in which a shard differs from the current job, and both values.
struct ShardDifference {
  std::string what;
  std::string own;
  std::string found;
};

// Throws a UserError that says that the shard belongs to another job.
[[noreturn]] void refuse_shard(const std::filesystem::path& shard, const ShardDifference& difference);

// Returns the difference between the provenances of two jobs that are not same_job().
ShardDifference job_difference(const std::map<std::string, std::string>& own,
                               const std::map<std::string, std::string>& found);

// Returns whether two provenances have the same kJob or, if `own` has none, are equal. A provenance `found` without
// kJob counts as written by an earlier version, for the same job.
bool same_job(const std::map<std::string, std::string>& own, const std::map<std::string, std::string>& found);

// The shards of FILE.h5 are FILE.shard-00000.h5, FILE.shard-00001.h5, ... beside it, each complete from the moment it
// has its name. At the end they are merged into FILE.h5 and removed.
class Shards {
 public:
  // Checks a shard and returns its number of examples. Errors: UserError for a shard of another job (refuse_shard) or a
  // damaged shard.
  using Check = std::function<int64_t(const std::filesystem::path&)>;
  // Returns the number of examples of a merged file of this job, or -1 for another file, which will be replaced.
  using CheckMerged = std::function<int64_t(const std::filesystem::path&)>;

  // Finds the shards of an earlier run, or its file if it had merged them.
  Shards(std::filesystem::path file, const Check& check, const CheckMerged& check_merged);

  const std::filesystem::path& file() const { return file_; }
  // Returns whether an earlier run had finished, except perhaps for removing its shards.
  bool merged() const { return merged_; }
  // Returns the examples in complete shards on disk, which survive a kill.
  int64_t safe() const { return safe_; }
  // Returns all files in order: the shards, or the merged file.
  std::vector<std::filesystem::path> parts() const;
  // Returns the path for the next shard.
  std::filesystem::path next() const;
  // Registers that the file next() is complete and has this many examples.
  void add(int64_t examples);
  // Removes the shards, after they were merged.
  void remove();

 private:
  std::filesystem::path file_;
  std::vector<std::filesystem::path> shards_;  // complete shards on disk
  bool merged_ = false;
  int64_t safe_ = 0;
};

}  // namespace draftsmith::data
