// Divides the shards of a file (data/hdf5/shards.h) among the processes that run a stage. So the file is the same
// whatever their number, and what a lost process had begun is merely missing.
#pragma once

#include <functional>
#include <vector>

#include "data/hdf5/shards.h"
#include "recipes/stage.h"

namespace draftsmith::recipes {

using ShardWork = std::function<void(const data::ShardRange&)>;

// Calls `write` with each of the missing ranges, the i-th on the process of rank i modulo the world size, and returns
// when all are written. All processes call it; the leader's ranges count. After each range a process calls `written`
// with it and with those that the others wrote meanwhile, for a progress. Returns the ranges of other processes.
// Errors: those of `write`, Interrupted, and as ProcessGroup::gather().
std::vector<data::ShardRange> divide_shards(const StageContext& run, const std::vector<data::ShardRange>& missing,
                                            const ShardWork& write, const ShardWork& written);

}  // namespace draftsmith::recipes
