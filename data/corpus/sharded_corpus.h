// Writes a corpus that takes hours to make (a teacher's outputs) shard by shard. A killed run loses at most one shard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "data/corpus/corpus.h"
#include "data/hdf5/shards.h"

namespace draftsmith::data {

// Each shard (data/hdf5/shards.h) is a whole corpus. New shards have `shard_examples` examples; shards of an earlier
// run may have any number. finish() merges the shards into one corpus and removes them.
//
//   ShardedCorpusWriter writer(file, info, 1000);
//   for (int64_t i = writer.done(); i < inputs; ++i) writer.add(source(i), output(i));
//   writer.finish();
class ShardedCorpusWriter {
 public:
  // Finds and checks the shards of an earlier run, or FILE.h5 if that run had merged them. Two jobs are equal if
  // tokenizer, vocabulary and kJob are equal; without kJob in `info`, if the whole provenance is. A shard without kJob
  // counts as written by an earlier version. Errors: UserError that names a shard of another job or a damaged shard.
  ShardedCorpusWriter(const std::filesystem::path& file, CorpusInfo info, int64_t shard_examples);
  ~ShardedCorpusWriter();
  // Returns the examples found at the beginning plus the examples added since: the index of the next example.
  int64_t done() const;
  // Returns the examples in complete shards on disk, which survive a kill.
  int64_t safe() const;
  // Calls `visit` with the target of each example in a complete shard, in order.
  void read_targets(const std::function<void(std::span<const int32_t>)>& visit) const;
  // Adds an example. Errors: std::logic_error after the corpus was merged.
  void add(std::span<const int32_t> source, std::span<const int32_t> target);
  // Writes the last shard, merges all shards into the corpus, adds `extra` to its provenance and removes the shards.
  void finish(const std::map<std::string, std::string>& extra = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace draftsmith::data
