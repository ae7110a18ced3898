// Decode states that nobody needs at present. Their device memory, and the work that was recorded over it, serve later
// batches of the same size: recording takes as long as a short text.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "model/transformer/decoder_state.h"

namespace draftsmith::model {

// Thread-safe.
class ResidentStates {
 public:
  // Keeps a state, and drops the one that was kept longest if there are too many. Drops the state instead if clear()
  // was called since it began, or if it was repeated: no later batch begins with such rows.
  void put(std::unique_ptr<DecoderState> state);
  // Returns a kept state, made new, that has these rows and holds so many tokens, the smallest if there are several;
  // nullptr: there is none.
  std::unique_ptr<DecoderState> take(int64_t rows, int64_t capacity);
  // Marks a new state, which may be kept later.
  void began(DecoderState& state);
  // Drops all states, and those in use once they come back.
  void clear();

 private:
  std::mutex mutex_;
  uint64_t era_ = 0;                                  // number of calls of clear()
  std::deque<std::unique_ptr<DecoderState>> states_;  // the latest first
};

}  // namespace draftsmith::model
