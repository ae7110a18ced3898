// Deals out the shards of a file (data/hdf5/shards.h) to the processes of a job: whoever is free takes the next one. So
// the file is the same whatever the number of processes, and what a lost process had begun is merely missing.
#pragma once

#include <functional>
#include <vector>

#include "base/logging.h"
#include "data/hdf5/shards.h"
#include "recipes/stage.h"

namespace draftsmith::recipes {

// Shards to be written, and the size of each in the unit of a progress.
struct DealtShards {
  std::vector<data::ShardRange> ranges;
  std::vector<int64_t> sizes;
};

// Returns the ranges with their numbers of examples as sizes.
DealtShards by_size(std::vector<data::ShardRange> ranges);

// Calls `write` with each of the ranges, every range on one process, and returns when all are written. All processes
// call it; the leader's ranges count. `progress` counts what all have written. Returns the ranges that other processes
// wrote. Errors: those of `write`, Interrupted, and as World::gather().
std::vector<data::ShardRange> deal_out(const StageContext& run, const DealtShards& shards, Progress& progress,
                                       const std::function<void(const data::ShardRange&)>& write);

}  // namespace draftsmith::recipes
