// Writes the training data of a router (data/router/router_data.h) shard by shard. A killed run loses at most one
// shard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "data/hdf5/shards.h"
#include "data/router/router_data.h"

namespace draftsmith::data {

// Each shard (data/hdf5/shards.h) holds the positions of some sources.
//
//   ShardedRouterData writer(file, info);
//   for (const ShardRange& range : writer.missing(256)) writer.add_shard(range, positions of these sources);
//   writer.finish();
class ShardedRouterData {
 public:
  // `info.examples` is the number of all sources. Finds and checks the shards of earlier runs, or FILE.h5 if a run had
  // merged them. Errors: UserError that names a shard of another job or a damaged shard.
  ShardedRouterData(const std::filesystem::path& file, RouterDataInfo info);
  // Returns whether only finish() is left to do.
  bool merged() const { return shards_.merged(); }
  // Returns the sources in complete shards on disk.
  int64_t done() const { return shards_.safe(); }
  // Returns the ranges of at most `shard_examples` sources that are still to be decoded.
  std::vector<ShardRange> missing(int64_t shard_examples) const { return shards_.missing(shard_examples); }
  // Writes the positions of a range's sources. Errors: std::logic_error for positions of other sources, and for a range
  // that is not missing.
  void add_shard(const ShardRange& range, const RouterRows& rows);
  // Merges the shards into the file and removes them. Errors: std::logic_error if a shard is missing.
  void finish();

 private:
  RouterDataInfo info_;
  Shards shards_;
};

}  // namespace draftsmith::data
