#include "model/layers/dropout.h"

#include "base/random_tensors.h"

namespace draftsmith::model {

at::Tensor Dropout::operator()(const at::Tensor& x) {
  if (!active()) {
    return x;
  }
  return draftsmith::dropout(x, context_.probability, next_key());
}

}  // namespace draftsmith::model
