#include "data/ngrams/ngram_keys.h"

#include <algorithm>
#include <queue>
#include <string>
#include <utility>

#include "base/files.h"

namespace draftsmith::data {

NgramSorter::NgramSorter(std::filesystem::path folder, size_t keys_at_once)
    : folder_(std::move(folder)), keys_at_once_(keys_at_once) {}

// Visits each distinct key in memory once and clears them.
void NgramSorter::sort_keys(const std::function<void(Counted)>& visit) {
  std::sort(keys_.begin(), keys_.end());
  for (auto first = keys_.begin(); first != keys_.end();) {
    const auto next = std::find_if(first, keys_.end(), [&](uint64_t key) { return key != *first; });
    visit({*first, next - first});
    first = next;
  }
  keys_.clear();
}

void NgramSorter::spill() {
  parts_.push_back(folder_ / ("part-" + std::to_string(parts_.size())));
  SpillFile<Counted> part(parts_.back());
  sort_keys([&](Counted counted) { part.add(counted); });
  part.close();
}

void NgramSorter::merge(const std::function<void(const NgramKey&, int64_t)>& visit) const {
  std::vector<MappedFile> files(parts_.begin(), parts_.end());
  std::vector<std::span<const Counted>> rest;
  using Head = std::pair<uint64_t, size_t>;  // smallest key of a part
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads;
  for (size_t part = 0; part < files.size(); ++part) {
    rest.push_back(all_values<Counted>(files[part]));
    if (!rest.back().empty()) heads.emplace(rest.back().front().key, part);
  }
  while (!heads.empty()) {
    Counted sum{heads.top().first, 0};
    while (!heads.empty() && heads.top().first == sum.key) {
      std::span<const Counted>& values = rest[heads.top().second];
      const size_t part = heads.top().second;
      heads.pop();
      sum.count += values.front().count;
      values = values.subspan(1);
      if (!values.empty()) heads.emplace(values.front().key, part);
    }
    visit(NgramKey::unpacked(sum.key), sum.count);
  }
}

void NgramSorter::finish(const std::function<void(const NgramKey&, int64_t)>& visit) {
  if (parts_.empty()) return sort_keys([&](Counted c) { visit(NgramKey::unpacked(c.key), c.count); });
  spill();
  keys_.shrink_to_fit();
  merge(visit);
}

}  // namespace draftsmith::data
