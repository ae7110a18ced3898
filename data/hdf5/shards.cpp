#include "data/hdf5/shards.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/util.h"

namespace draftsmith::data {
namespace {

// Returns the range that follows `before` in a shard's name; an empty range if there is none.
ShardRange range_in(std::string_view name, const std::string& before) {
  ShardRange range;
  if (!name.starts_with(before)) return range;
  const char* end = name.data() + name.size();
  const auto [dash, error] = std::from_chars(name.data() + before.size(), end, range.first);
  if (error == std::errc() && dash != end) std::from_chars(dash + 1, end, range.last);
  return range;
}

std::string job_of(const Shards::Content& content) {
  const auto found = content.provenance.find(kJob);
  return found == content.provenance.end() ? "none" : found->second;
}

void check_shard(const std::filesystem::path& shard, const ShardRange& range, const std::string& job,
                 const Shards::Content& content, int64_t covered) {
  if (job_of(content) != job) {
    throw UserError({.where = shard.string(),
                     .what = "shard of another job",
                     .expected = job + ", the job that is being continued",
                     .found = job_of(content),
                     .hint = "remove the shards to begin again, or write to another file"});
  }
  if (content.examples == range.size() && range.first >= covered) return;
  throw UserError({.where = shard.string(),
                   .what = "the shard holds other examples than its name says, or those of another one, too",
                   .expected = fmt::format("{} examples, from {} on", range.size(), covered),
                   .found = fmt::format("{}", content.examples),
                   .hint = "remove this file; its examples are then made again"});
}

}  // namespace

Shards::Shards(std::filesystem::path file, int64_t examples, const std::string& job, const Open& open)
    : file_(std::move(file)), examples_(examples) {
  if (std::filesystem::exists(file_)) {
    const Content content = open(file_);
    merged_ = job_of(content) == job && content.examples == examples;
  }
  if (!std::filesystem::is_directory(file_.parent_path())) return;
  for (const auto& entry : std::filesystem::directory_iterator(file_.parent_path())) {
    const ShardRange range = range_in(entry.path().filename().string(), file_.stem().string() + ".shard-");
    if (range.size() > 0 && range.last <= examples_ && place(range) == entry.path()) shards_.push_back(range);
  }
  std::ranges::sort(shards_, {}, &ShardRange::first);
  if (merged_) return;
  int64_t covered = 0;
  for (const ShardRange& range : shards_) {
    check_shard(place(range), range, job, open(place(range)), covered);
    covered = range.last;
  }
}

int64_t Shards::safe() const {
  if (merged_) return examples_;
  int64_t examples = 0;
  for (const ShardRange& range : shards_) examples += range.size();
  return examples;
}

std::vector<ShardRange> Shards::missing(int64_t most) const {
  std::vector<ShardRange> ranges;
  if (merged_) return ranges;
  const auto add_gap = [&](int64_t first, int64_t last) {
    while (first < last) {
      const int64_t end = std::min(last, (first / most + 1) * most);
      ranges.push_back({first, end});
      first = end;
    }
  };
  int64_t covered = 0;
  for (const ShardRange& range : shards_) {
    add_gap(covered, range.first);
    covered = range.last;
  }
  add_gap(covered, examples_);
  return ranges;
}

std::vector<std::filesystem::path> Shards::parts() const {
  if (merged_) return {file_};
  return from_each(shards_, [&](const ShardRange& range) { return place(range); });
}

std::filesystem::path Shards::place(const ShardRange& range) const {
  return file_.parent_path() / fmt::format("{}.shard-{:09}-{:09}.h5", file_.stem().string(), range.first, range.last);
}

void Shards::add(const ShardRange& range) {
  if (merged_) throw std::logic_error("a shard was added to a finished file");
  const auto after = std::ranges::find_if(shards_, [&](const auto& other) { return other.first >= range.first; });
  const bool overlaps = (after != shards_.end() && after->first < range.last) ||
                        (after != shards_.begin() && std::prev(after)->last > range.first);
  if (overlaps || range.size() < 1 || range.last > examples_) {
    throw std::logic_error("a shard is not one of those that are missing");
  }
  shards_.insert(after, range);
}

void Shards::remove() {
  if (!std::filesystem::exists(file_) || !missing(std::max<int64_t>(1, examples_)).empty()) {
    throw std::logic_error("the shards of " + file_.string() + " are removed before it is complete");
  }
  for (const ShardRange& range : shards_) std::filesystem::remove(place(range));
  shards_.clear();
}

}  // namespace draftsmith::data
