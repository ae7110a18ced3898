// Manages the shards of a file that takes hours to make, so that a killed run loses at most one shard: their names,
// which exist, which examples are missing, and when they are removed.
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

// The examples [first, last) of the whole file that one shard holds.
struct ShardRange {
  int64_t first = 0;
  int64_t last = 0;
  int64_t size() const { return last - first; }
  bool operator==(const ShardRange&) const = default;
};

// The shards of FILE.h5 are FILE.shard-FIRST-LAST.h5 beside it, each complete from the moment it has its name. Any
// process may make any shard, in any order. At the end they are merged into FILE.h5 and removed.
//
//   Shards shards(file, examples, job, open);
//   for (const ShardRange& range : shards.missing(1000)) { write to shards.place(range); shards.add(range); }
//   if (!shards.merged()) merge shards.parts() into the file;
//   shards.remove();
class Shards {
 public:
  // What a shard or a merged file says of itself.
  struct Content {
    std::map<std::string, std::string> provenance{};
    int64_t examples = 0;
  };
  // Opens and checks a file. Errors: UserError for a damaged one.
  using Open = std::function<Content(const std::filesystem::path&)>;

  // Finds the shards of earlier runs, or the file of `examples` if a run had merged them; a merged file of another job
  // will be replaced. `job` is the value of kJob. Errors: UserError for a shard of another job or of other examples
  // than its name says, and those of `open`.
  Shards(std::filesystem::path file, int64_t examples, const std::string& job, const Open& open);

  // Returns whether an earlier run had finished, except perhaps for removing its shards.
  bool merged() const { return merged_; }
  // Returns the number of examples in complete shards on disk, which survive a kill.
  int64_t safe() const;
  // Returns the ranges that no shard holds, in order, cut at multiples of `most` examples.
  std::vector<ShardRange> missing(int64_t most) const;
  // Returns all files in order: the shards, or the merged file.
  std::vector<std::filesystem::path> parts() const;
  // Returns the path of the shard of a range.
  std::filesystem::path place(const ShardRange& range) const;
  // Registers that the file place(range) is complete. Errors: std::logic_error if a part of it was there already.
  void add(const ShardRange& range);
  // Removes the shards, after they were merged. Errors: std::logic_error if the file or a shard is missing.
  void remove();

 private:
  std::filesystem::path file_;
  int64_t examples_ = 0;
  std::vector<ShardRange> shards_;  // complete shards on disk, in order, without overlaps
  bool merged_ = false;
};

}  // namespace draftsmith::data
