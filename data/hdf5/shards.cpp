#include "data/hdf5/shards.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace draftsmith::data {

namespace {

// Returns the number that the text consists of.
std::optional<int64_t> number_of(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// The part of a shard's name that says which one it is: the middle of FILE.shard-....h5.
std::optional<std::string_view> shard_label(std::string_view name, const std::string& stem) {
  const std::string before = stem + ".shard-";
  constexpr std::string_view kAfter = ".h5";
  if (!name.starts_with(before) || !name.ends_with(kAfter)) return std::nullopt;
  if (name.size() < before.size() + kAfter.size()) return std::nullopt;
  return name.substr(before.size(), name.size() - before.size() - kAfter.size());
}

std::optional<ShardRange> range_of(std::string_view label) {
  const size_t dash = label.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto first = number_of(label.substr(0, dash));
  const auto last = number_of(label.substr(dash + 1));
  if (!first || !last || *first >= *last) return std::nullopt;
  return ShardRange{*first, *last};
}

std::string value_of(const Shards::Content& content, const char* key) {
  const auto found = content.provenance.find(key);
  return found == content.provenance.end() ? "none" : found->second;
}

void check_shard(const std::filesystem::path& shard, const ShardRange& range, const std::string& job,
                 const Shards::Content& content) {
  if (const std::string found = value_of(content, kJob); found != job) {
    throw UserError({.where = shard.string(),
                     .what = "shard of another job",
                     .expected = job + ", the job that is being continued",
                     .found = found,
                     .hint = "remove the shards to begin again, or write to another file"});
  }
  const std::string found = value_of(content, ShardRange::kKey);
  if (found == range.text() && content.examples == range.size()) return;
  throw UserError({.where = shard.string(),
                   .what = "the shard holds other examples than its name says",
                   .expected = fmt::format("{} examples: {}", range.size(), range.text()),
                   .found = fmt::format("{} examples: {}", content.examples, found),
                   .hint = "remove this file; its examples are then made again"});
}

}  // namespace

std::string ShardRange::text() const {
  return fmt::format("{}-{}", first, last);
}

Shards::Shards(std::filesystem::path file, int64_t examples, const std::string& job, const Open& open)
    : file_(std::move(file)), examples_(examples) {
  if (std::filesystem::exists(file_)) {
    const Content content = open(file_);
    merged_ = value_of(content, kJob) == job && content.examples == examples;
  }
  find();
  if (merged_) return;
  for (const ShardRange& range : shards_) {
    check_shard(place(range), range, job, open(place(range)));
    if (range.last <= examples_) continue;
    throw UserError({.where = place(range).string(),
                     .what = "a shard lies behind the last example",
                     .expected = fmt::format("examples 0 to {}", examples_),
                     .found = range.text(),
                     .hint = "remove the shards to begin again"});
  }
}

void Shards::find() {
  if (!std::filesystem::is_directory(file_.parent_path())) return;
  std::vector<ShardRange> found;
  for (const auto& entry : std::filesystem::directory_iterator(file_.parent_path())) {
    const std::string name = entry.path().filename().string();
    const auto label = shard_label(name, file_.stem().string());
    if (!label) continue;
    const auto range = range_of(*label);
    if (range && place(*range) == entry.path()) found.push_back(*range);
  }
  // Of shards that begin with the same example, the longest comes first.
  std::sort(found.begin(), found.end(), [](const ShardRange& a, const ShardRange& b) {
    return a.first != b.first ? a.first < b.first : a.last > b.last;
  });
  for (const ShardRange& range : found) {
    if (!shards_.empty() && range.first < shards_.back().last) {
      useless_.push_back(place(range));
    } else {
      shards_.push_back(range);
    }
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
  std::vector<std::filesystem::path> files;
  for (const ShardRange& range : shards_) files.push_back(place(range));
  return files;
}

std::filesystem::path Shards::place(const ShardRange& range) const {
  return file_.parent_path() / fmt::format("{}.shard-{:09}-{:09}.h5", file_.stem().string(), range.first, range.last);
}

void Shards::add(const ShardRange& range) {
  if (merged_) throw std::logic_error("a shard was added to a finished file");
  const auto after =
      std::find_if(shards_.begin(), shards_.end(), [&](const ShardRange& other) { return other.first >= range.first; });
  const bool overlaps = (after != shards_.end() && after->first < range.last) ||
                        (after != shards_.begin() && std::prev(after)->last > range.first);
  if (overlaps || range.size() < 1 || range.last > examples_) {
    throw std::logic_error("shard " + range.text() + " is not one of those that are missing");
  }
  shards_.insert(after, range);
}

void Shards::remove() {
  for (const ShardRange& range : shards_) std::filesystem::remove(place(range));
  for (const auto& file : useless_) std::filesystem::remove(file);
  shards_.clear();
  useless_.clear();
}

void Shards::require_complete() const {
  const auto gaps = missing(std::max<int64_t>(1, examples_));
  if (!gaps.empty()) throw std::logic_error("a file is finished without its examples " + gaps.front().text());
}

}  // namespace draftsmith::data
