// A corpus that takes hours to make (a teacher's outputs), written shard by shard, so that a killed run loses at most
// one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/corpus.h"

namespace draftsmith::data {

// Shards of FILE.h5 are FILE.shard-00000.h5, FILE.shard-00001.h5, ... beside it, each a whole corpus of
// `shard_examples` examples that appeared by a rename. finish() merges them into FILE.h5 and removes them.
//
//   ShardedCorpusWriter writer(file, info, 1000);
//   for (int64_t i = writer.done(); i < inputs; ++i) writer.add(source(i), output(i));
//   writer.finish();
class ShardedCorpusWriter {
 public:
  // Finds and checks the shards of an earlier run. Errors: UserError for shards of another job (tokenizer, vocabulary,
  // provenance or shard size differ from these) and for damaged ones, naming the shard.
  ShardedCorpusWriter(const std::filesystem::path& file, CorpusInfo info, int64_t shard_examples);
  ~ShardedCorpusWriter();
  // Examples in whole shards on disk when the writer was opened, plus those added since: where to go on.
  int64_t done() const;
  // Examples on disk in whole shards: what a kill at this moment would keep.
  int64_t safe() const;
  void add(std::span<const int32_t> source, std::span<const int32_t> target);
  // Writes the last, smaller shard, merges all into the corpus (with `extra` provenance added) and removes the shards.
  void finish(const std::map<std::string, std::string>& extra = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace draftsmith::data
