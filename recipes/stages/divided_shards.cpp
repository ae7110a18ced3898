#include "recipes/stages/divided_shards.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/signals.h"

namespace draftsmith::recipes {

namespace {

// Returns the leader's ranges: another process may have looked while there were more or fewer files.
std::vector<data::ShardRange> leaders(ProcessGroup& world, const std::vector<data::ShardRange>& own) {
  nlohmann::json told = nlohmann::json::array();
  for (const data::ShardRange& range : own) told.push_back(nlohmann::json::array({range.first, range.last}));
  std::vector<data::ShardRange> ranges;
  for (const auto& one : nlohmann::json::parse(world.from_leader("finding the missing shards", told.dump()))) {
    ranges.push_back({one.at(0).get<int64_t>(), one.at(1).get<int64_t>()});
  }
  return ranges;
}

}  // namespace

std::vector<data::ShardRange> divide_shards(const StageContext& run, const std::vector<data::ShardRange>& missing,
                                            const ShardWork& write, const ShardWork& written) {
  ProcessGroup& world = *run.execution.world;
  const std::vector<data::ShardRange> ranges = leaders(world, missing);
  std::vector<data::ShardRange> others;
  world.gather_parts("the shards of " + run.directory.filename().string(), [&]() -> nlohmann::json {
    for (size_t i = 0; i < ranges.size(); ++i) {
      if (!world.has(static_cast<int64_t>(i))) {
        others.push_back(ranges[i]);
        continue;
      }
      throw_if_stop_requested("whole shards are saved; run it again to continue");
      write(ranges[i]);
      const size_t end = std::min(ranges.size(), i + static_cast<size_t>(world.size()));
      std::for_each(ranges.begin() + static_cast<std::ptrdiff_t>(i), ranges.begin() + static_cast<std::ptrdiff_t>(end),
                    written);
    }
    return true;
  });
  return others;
}

}  // namespace draftsmith::recipes
