// The mode of LibTorch that decoding runs in.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

namespace draftsmith::model {

// Turns off gradients and all autograd bookkeeping: decoding is many small operations. Unlike InferenceMode it makes
// ordinary tensors, which callers may change in place.
class DecodingGuard {
 private:
  at::NoGradGuard no_grad_;
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
};

}  // namespace draftsmith::model
