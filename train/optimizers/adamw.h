// AdamW: m = b1 m + (1-b1) g, v = b2 v + (1-b2) g^2, w -= lr (m^ / (sqrt(v^) + eps) + decay w), with bias-corrected m^,
// v^. All parameters that learn alike are updated by one fused kernel.
#pragma once

#include "train/optimizers/optimizer.h"

namespace draftsmith::train {

class AdamW : public Optimizer {
 public:
  AdamW(std::vector<OptimizedParameter> parameters, const AdamWOptions& options);
  std::map<std::string, at::Tensor> state() const override;

 protected:
  void update(double lr, double gradient_scale) override;

 private:
  AdamWOptions options_;
  std::vector<at::Tensor> first_moments_;   // like each parameter
  std::vector<at::Tensor> second_moments_;  // like each parameter
};

}  // namespace draftsmith::train
