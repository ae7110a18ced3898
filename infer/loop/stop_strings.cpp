#include "infer/loop/stop_strings.h"

#include <algorithm>

namespace draftsmith::infer {

StopStringMatcher::StopStringMatcher(std::shared_ptr<const std::vector<std::string>> strings,
                                     const data::Tokenizer& tokenizer)
    : strings_(std::move(strings)), tokenizer_(tokenizer), decoder_(tokenizer) {
  for (const std::string& stop : *strings_) longest_ = std::max(longest_, stop.size());
}

bool StopStringMatcher::add(int64_t token) {
  if (token < 0 || token >= tokenizer_.vocabulary()) return false;
  const std::string added = decoder_.push(static_cast<int32_t>(token));
  if (added.empty()) return false;
  const size_t known = tail_.size();
  tail_ += added;
  const bool found = std::ranges::any_of(*strings_, [&](const std::string& stop) {
    const size_t first = known >= stop.size() ? known - stop.size() + 1 : 0;  // the match ends in the added text
    return tail_.find(stop, first) != std::string::npos;
  });
  tail_.erase(0, tail_.size() - std::min(tail_.size(), longest_ - 1));
  return found;
}

}  // namespace draftsmith::infer
