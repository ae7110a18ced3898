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
  // Keeps a state, and drops the one that was kept longest if there are too many.
  void put(std::unique_ptr<DecoderState> state);
  // Returns a kept state, made new, that has these rows and holds so many tokens; nullptr: there is none.
  std::unique_ptr<DecoderState> take(int64_t rows, int64_t capacity);
  void clear();

 private:
  std::mutex mutex_;
  std::deque<std::unique_ptr<DecoderState>> states_;  // the latest first
};

}  // namespace draftsmith::model
