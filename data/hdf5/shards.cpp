#include "data/hdf5/shards.h"

#include <array>
#include <cstdio>
#include <ranges>
#include <utility>

#include "base/error.h"

namespace draftsmith::data {

namespace {

std::filesystem::path shard_file(const std::filesystem::path& file, size_t index) {
  std::array<char, 32> suffix{};
  std::snprintf(suffix.data(), suffix.size(), ".shard-%05zu.h5", index);
  return file.parent_path() / (file.stem().string() + suffix.data());
}

}  // namespace

void refuse_shard(const std::filesystem::path& shard, const ShardDifference& difference) {
  throw UserError({.where = shard.string(),
                   .what = "shard of another job: its " + difference.what + " differs",
                   .expected = difference.own + ", as the job that is being continued",
                   .found = difference.found,
                   .hint = "remove the shards to begin again, or write to another file"});
}

ShardDifference job_difference(const std::map<std::string, std::string>& own,
                               const std::map<std::string, std::string>& found) {
  const auto beyond = [](const auto& some, const auto& others) {
    std::string text;
    for (const auto& [key, value] : some) {
      const auto other = others.find(key);
      if (other != others.end() && other->second == value) continue;
      text += (text.empty() ? "" : ", ") + key + " = " + value;
    }
    return text.empty() ? std::string("nothing beyond it") : text;
  };
  return {"provenance", beyond(own, found), beyond(found, own)};
}

bool same_job(const std::map<std::string, std::string>& own, const std::map<std::string, std::string>& found) {
  const auto own_job = own.find(kJob);
  if (own_job == own.end()) return found == own;
  const auto job = found.find(kJob);
  return job == found.end() || job->second == own_job->second;
}

// Shards are written in order: the earlier run stopped at the first missing number.
Shards::Shards(std::filesystem::path file, const Check& check, const CheckMerged& check_merged)
    : file_(std::move(file)) {
  if (std::filesystem::exists(file_)) {
    const int64_t examples = check_merged(file_);
    merged_ = examples >= 0;
    if (merged_) safe_ = examples;
  }
  while (std::filesystem::exists(next())) {
    const int64_t examples = check(next());
    if (!merged_) safe_ += examples;
    shards_.push_back(next());
  }
}

std::vector<std::filesystem::path> Shards::parts() const {
  return merged_ ? std::vector{file_} : shards_;
}

std::filesystem::path Shards::next() const {
  return shard_file(file_, shards_.size());
}

void Shards::add(int64_t examples) {
  shards_.push_back(next());
  safe_ += examples;
}

// Removes from the last to the first, so that the next run finds the shards that a kill leaves.
void Shards::remove() {
  for (const auto& shard : std::views::reverse(shards_)) std::filesystem::remove(shard);
  shards_.clear();
}

}  // namespace draftsmith::data
