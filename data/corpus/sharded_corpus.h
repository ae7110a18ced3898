// A corpus that takes hours to make (a teacher's outputs), written shard by shard, so that a killed run loses at most
// one.
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

// Shards (data/hdf5/shards.h), each a whole corpus. New ones have `shard_examples` examples; those of an earlier run
// may have any number. finish() merges them into one corpus and removes them.
//
//   ShardedCorpusWriter writer(file, info, 1000);
//   for (int64_t i = writer.done(); i < inputs; ++i) writer.add(source(i), output(i));
//   writer.finish();
class ShardedCorpusWriter {
 public:
  // Finds and checks the shards of an earlier run; where that one had merged them already, its FILE.h5. Errors:
  // UserError for shards of another job and for damaged ones, naming the shard. A job is told by tokenizer, vocabulary
  // and kJob; without kJob in `info` by the whole provenance. A shard without kJob is taken for one of an earlier
  // version's.
  ShardedCorpusWriter(const std::filesystem::path& file, CorpusInfo info, int64_t shard_examples);
  ~ShardedCorpusWriter();
  // Examples in whole shards on disk when the writer was opened, plus those added since: where to go on.
  int64_t done() const;
  // Examples on disk in whole shards: what a kill at this moment would keep.
  int64_t safe() const;
  // Calls `visit` with the target of each example that is safe, in order.
  void read_targets(const std::function<void(std::span<const int32_t>)>& visit) const;
  // Errors: std::logic_error after the corpus was merged.
  void add(std::span<const int32_t> source, std::span<const int32_t> target);
  // Writes the last, smaller shard, merges all into the corpus (with `extra` provenance added) and removes the shards.
  void finish(const std::map<std::string, std::string>& extra = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace draftsmith::data
