#include "model/transformer/resident_states.h"

#include <utility>

namespace draftsmith::model {
namespace {

// States that a model keeps: a whole batch's, and one of another size.
constexpr size_t kMostStates = 2;

}  // namespace

void ResidentStates::put(std::unique_ptr<DecoderState> state) {
  const std::scoped_lock lock(mutex_);
  if (state->era() != era_ || state->is_repeated()) return;
  states_.push_front(std::move(state));
  if (states_.size() > kMostStates) states_.pop_back();
}

std::unique_ptr<DecoderState> ResidentStates::take(int64_t rows, int64_t capacity) {
  const std::scoped_lock lock(mutex_);
  auto best = states_.end();
  for (auto state = states_.begin(); state != states_.end(); ++state) {
    const bool smaller = best == states_.end() || (*state)->capacity() < (*best)->capacity();
    if ((*state)->fits(rows, capacity) && smaller) best = state;
  }
  if (best == states_.end()) return nullptr;
  std::unique_ptr<DecoderState> found = std::move(*best);
  states_.erase(best);
  found->begin_again();
  return found;
}

void ResidentStates::began(DecoderState& state) {
  const std::scoped_lock lock(mutex_);
  state.set_era(era_);
}

void ResidentStates::clear() {
  const std::scoped_lock lock(mutex_);
  states_.clear();
  ++era_;
}

}  // namespace draftsmith::model
