#include "recipes/stages/dealt_shards.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/signals.h"
#include "distributed/dealing.h"

namespace draftsmith::recipes {

namespace {

// Returns the leader's shards: another process may have looked while there were more or fewer files.
DealtShards leaders(World& world, const DealtShards& own) {
  if (world.is_alone()) return own;
  nlohmann::json told = nlohmann::json::array();
  for (size_t i = 0; i < own.ranges.size(); ++i) {
    told.push_back({own.ranges[i].first, own.ranges[i].last, own.sizes[i]});
  }
  DealtShards shards;
  for (const auto& one : nlohmann::json::parse(world.from_leader("finding the missing shards", told.dump()))) {
    shards.ranges.push_back({one.at(0).get<int64_t>(), one.at(1).get<int64_t>()});
    shards.sizes.push_back(one.at(2).get<int64_t>());
  }
  return shards;
}

}  // namespace

DealtShards by_size(std::vector<data::ShardRange> ranges) {
  DealtShards shards{.ranges = std::move(ranges), .sizes = {}};
  for (const data::ShardRange& range : shards.ranges) shards.sizes.push_back(range.size());
  return shards;
}

std::vector<data::ShardRange> deal_out(const StageContext& run, const DealtShards& own, Progress& progress,
                                       const std::function<void(const data::ShardRange&)>& write) {
  World& world = *run.execution.world;
  const DealtShards shards = leaders(world, own);
  const std::string what = "the shards of " + run.directory.filename().string();
  SharedProgress shared(world, what, shards.sizes, progress);
  const auto count = static_cast<int64_t>(shards.ranges.size());
  const std::vector<int64_t> taken = draftsmith::deal_out(world, what, count, [&](int64_t number) {
    throw_if_stop_requested("whole shards are saved; run it again to continue");
    write(shards.ranges[static_cast<size_t>(number)]);
    shared.finished_one();
  });
  shared.finished_all();
  std::vector<data::ShardRange> others;
  for (int64_t number = 0; number < count; ++number) {
    if (!std::ranges::binary_search(taken, number)) others.push_back(shards.ranges[static_cast<size_t>(number)]);
  }
  return others;
}

}  // namespace draftsmith::recipes
