// Adafactor (Shazeer and Stern 2018, Algorithms 4 and 5) as transformers.optimization.Adafactor computes it with
// relative_step off: second moments of matrices kept as a row and a column, updates clipped by their root mean square.
//
//   b2 = 1 - t^decay_rate;  s = g^2 + eps1
//   matrices: row = b2 row + (1-b2) mean_columns(s), column likewise; u = g / sqrt(row column / mean(row))
//   vectors:  v = b2 v + (1-b2) s; u = g / sqrt(v)
//   u /= max(1, rms(u)/clip_threshold);  u *= lr * (scale_parameter ? max(eps2, rms(w)) : 1)
//   with beta1: m = beta1 m + (1-beta1) u, u = m;   w -= decay * lr' * w, then w -= u
#pragma once

#include "train/optimizers/optimizer.h"

namespace draftsmith::train {

class Adafactor : public Optimizer {
 public:
  Adafactor(std::vector<OptimizedParameter> parameters, const AdafactorOptions& options);
  std::map<std::string, at::Tensor> state() const override;

 protected:
  void update(double lr, double gradient_scale) override;

 private:
  // What is remembered of one parameter. Undefined tensors are not used by it.
  struct Memory {
    at::Tensor row;            // [...,rows]
    at::Tensor column;         // [...,columns]
    at::Tensor second_moment;  // like the parameter; vectors only
    at::Tensor first_moment;   // like the parameter; with beta1
  };
  // g / sqrt(estimated second moment), after updating the estimate.
  at::Tensor normalized(const at::Tensor& gradient, Memory& memory) const;

  AdafactorOptions options_;
  std::vector<Memory> memories_;  // one a parameter
};

}  // namespace draftsmith::train
