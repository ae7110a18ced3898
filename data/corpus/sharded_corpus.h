// Writes a corpus that takes hours to make (a teacher's outputs) shard by shard. A killed run loses at most one shard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/corpus/corpus.h"
#include "data/hdf5/shards.h"

namespace draftsmith::data {

// Each shard (data/hdf5/shards.h) is a whole corpus of some of the examples. finish() merges the shards into one corpus
// and removes them.
//
//   ShardedCorpusWriter writer(file, info, examples);
//   for (const ShardRange& range : writer.missing(1000)) writer.write(range, [&](CorpusWriter& shard) { ... });
//   writer.finish();
class ShardedCorpusWriter {
 public:
  // Finds and checks the shards of earlier runs, or FILE.h5 if a run had merged them. The provenance of `info` names
  // the job (kJob). Errors: UserError that names a shard of another job or a damaged shard.
  ShardedCorpusWriter(const std::filesystem::path& file, CorpusInfo info, int64_t examples);
  // Returns the examples in complete shards on disk, which survive a kill.
  int64_t done() const { return shards_.safe(); }
  // Returns the ranges of at most `shard_examples` that are still to be written.
  std::vector<ShardRange> missing(int64_t shard_examples) const { return shards_.missing(shard_examples); }
  // Calls `visit` with the target of each example in a complete shard, in order.
  void read_targets(const std::function<void(std::span<const int32_t>)>& visit) const;
  // Writes a shard, whose examples `fill` adds in order. Errors: std::logic_error for another number of examples, and
  // for a range that is not missing.
  void write(const ShardRange& range, const std::function<void(CorpusWriter&)>& fill);
  // Registers a shard of a missing range that another process has written. Errors: std::logic_error for a range that is
  // not missing.
  void adopt(const ShardRange& range) { shards_.add(range); }
  // Merges all shards into the corpus, adds `extra` to its provenance and removes the shards. Errors: std::logic_error
  // if a shard is missing.
  void finish(const std::map<std::string, std::string>& extra = {});

 private:
  CorpusInfo info_;
  Shards shards_;
};

}  // namespace draftsmith::data
