#include "model/transformer/resident_states.h"

#include <utility>

namespace draftsmith::model {
namespace {

// States that a model keeps: a whole batch's, and one of another size.
constexpr size_t kMostStates = 2;

}  // namespace

void ResidentStates::put(std::unique_ptr<DecoderState> state) {
  const std::scoped_lock lock(mutex_);
  states_.push_front(std::move(state));
  if (states_.size() > kMostStates) states_.pop_back();
}

std::unique_ptr<DecoderState> ResidentStates::take(int64_t rows, int64_t capacity) {
  const std::scoped_lock lock(mutex_);
  for (auto state = states_.begin(); state != states_.end(); ++state) {
    if (!(*state)->begin_again(rows, capacity)) continue;
    std::unique_ptr<DecoderState> found = std::move(*state);
    states_.erase(state);
    return found;
  }
  return nullptr;
}

void ResidentStates::clear() {
  const std::scoped_lock lock(mutex_);
  states_.clear();
}

}  // namespace draftsmith::model
