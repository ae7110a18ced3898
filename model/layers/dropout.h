// Dropout whose masks come from a counter-based generator: mask = f(seed, step, site), whatever ran before.
#pragma once

#include <cstdint>

#include "base/aten.h"
#include "base/random_tensors.h"

namespace draftsmith::model {

// Dropout of a training pass. The same (seed, step) gives the same masks, so that a resumed run is bit-identical.
struct DropoutContext {
  double probability = 0.0;  // 0: none
  uint64_t seed = 0;
  uint64_t step = 0;  // micro-batch counter
};

// The dropout sites of one forward pass. Each call is the next site and draws its own mask.
class Dropout {
 public:
  explicit Dropout(const DropoutContext& context) : context_(context) {}

  bool active() const { return context_.probability > 0.0; }
  double probability() const { return context_.probability; }
  // Returns x with each element zeroed with the context's probability and the others scaled by 1/(1-p); x itself when
  // inactive.
  at::Tensor operator()(const at::Tensor& x) {
    return active() ? draftsmith::dropout(x, context_.probability, next_key()) : x;
  }
  // Returns the key of the next site, for code that draws its mask itself.
  DropoutKey next_key() { return {context_.seed, context_.step, site_++}; }

 private:
  DropoutContext context_;
  uint32_t site_ = 0;
};

}  // namespace draftsmith::model
