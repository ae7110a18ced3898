#include "data/router/sharded_router_data.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/error.h"

namespace draftsmith::data {

namespace {

// Returns the difference between router data and the job that `own` describes, if there is one.
std::optional<ShardDifference> router_difference(const RouterDataInfo& own, const RouterDataInfo& found) {
  const auto difference = [](const char* what, int64_t one, int64_t other) {
    return ShardDifference{what, std::to_string(one), std::to_string(other)};
  };
  if (found.drafter_hash != own.drafter_hash) return ShardDifference{"drafter", own.drafter_hash, found.drafter_hash};
  if (found.top_k != own.top_k) return difference("top_k", own.top_k, found.top_k);
  if (found.context != own.context) return difference("context", own.context, found.context);
  if (found.vocabulary != own.vocabulary) return difference("vocabulary", own.vocabulary, found.vocabulary);
  if (found.examples != own.examples) return difference("number of sources", own.examples, found.examples);
  if (same_job(own.provenance, found.provenance)) return std::nullopt;
  return job_difference(own.provenance, found.provenance);
}

// Returns whether all positions are of the range's sources, in order.
bool are_of(const std::vector<int32_t>& sources, const ShardRange& range) {
  return sources.empty() || (std::is_sorted(sources.begin(), sources.end()) && sources.front() >= range.first &&
                             sources.back() < range.last);
}

void check_router_shard(const std::filesystem::path& file, const ShardRange& range, const RouterDataInfo& own) {
  const RouterData shard(file);
  if (const auto difference = router_difference(own, shard.info())) refuse_shard(file, *difference);
  check_shard_range(file, range, shard.info().provenance, range.size());
  const std::vector<int32_t>& sources = shard.rows().examples;
  if (are_of(sources, range)) return;
  throw UserError({.where = file.string(),
                   .what = "the shard holds positions of other sources than its name says",
                   .expected = "sources " + range.text() + ", rising",
                   .found = std::to_string(sources.front()) + " to " + std::to_string(sources.back()),
                   .hint = "remove this file; its sources are then decoded again"});
}

}  // namespace

ShardedRouterData::ShardedRouterData(const std::filesystem::path& file, RouterDataInfo info)
    : info_(std::move(info)),
      shards_(
          file, info_.examples,
          [this](const auto& shard, const ShardRange& range) { check_router_shard(shard, range, info_); },
          [this](const auto& merged) { return !router_difference(info_, read_router_data_info(merged)); }) {}

void ShardedRouterData::add_shard(const ShardRange& range, const RouterRows& rows) {
  if (!are_of(rows.examples, range)) throw std::logic_error("positions of other sources than " + range.text());
  RouterDataInfo info = info_;
  info.provenance = shard_provenance(std::move(info.provenance), range);
  write_router_data(shards_.place(range), info, rows);
  shards_.add(range);
}

void ShardedRouterData::finish() {
  if (!merged()) {
    shards_.require_complete();
    merge_router_data(shards_.parts(), shards_.file(), info_);
  }
  shards_.remove();
}

}  // namespace draftsmith::data
