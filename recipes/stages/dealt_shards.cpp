#include "recipes/stages/dealt_shards.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/signals.h"

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
  const std::string name = run.directory.filename().string();
  const std::string begun = world.new_counter(name), finished = world.new_counter(name);
  const auto count = static_cast<int64_t>(shards.ranges.size());
  std::vector<data::ShardRange> others;
  int64_t next = 0, shown = 0;
  while (true) {
    throw_if_stop_requested("whole shards are saved; run it again to continue");
    const int64_t taken = world.ticket(begun);
    for (; next < std::min(taken, count); ++next) others.push_back(shards.ranges[static_cast<size_t>(next)]);
    next = taken + 1;
    if (taken >= count) break;
    write(shards.ranges[static_cast<size_t>(taken)]);
    // Shards are about as long as each other, so that it does not matter which of them are finished.
    for (const int64_t written = world.ticket(finished) + 1; shown < written; ++shown) {
      progress.advance(shards.sizes[static_cast<size_t>(shown)]);
    }
  }
  world.wait_for_all("the shards of " + name);
  for (; shown < count; ++shown) progress.advance(shards.sizes[static_cast<size_t>(shown)]);
  return others;
}

}  // namespace draftsmith::recipes
