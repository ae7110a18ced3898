// Scores of neurons and heads for pruning: by their weights (Han et al. 2015; Michel et al. 2019 for heads), or by
// their contribution to the residual stream on calibration text, the root mean square over positions of the vector that
// a neuron or head adds. For neurons that is Wanda's |activation| * |weight| (Sun et al. 2024).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/aten.h"
#include "model/layers/activation_observer.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

// Returns for each neuron of the feed-forward sublayer `prefix` the product of the norms of its row in the up (and
// gate) matrix and its column in the down matrix. [F]
at::Tensor neuron_magnitudes(const TransformerModel& model, const std::string& prefix);
// Returns for each group of heads that share keys the product of the norms of its value rows and output columns. [kv]
at::Tensor head_magnitudes(const TransformerModel& model, const std::string& prefix);

// Second moments of the activations of a running model, over batches without padding.
class ActivationMoments {
 public:
  explicit ActivationMoments(const TransformerConfig& config) : heads_(config.heads) {}

  // Adds the activations of a sublayer (model/layers/activation_observer.h).
  void add(const std::string& sublayer, const at::Tensor& input);
  // Returns an observer that calls add(), for ForwardInput::observer. The moments must outlive it.
  ActivationObserver observer() {
    return [this](const std::string& sublayer, const at::Tensor& input) { add(sublayer, input); };
  }

  bool empty() const { return sums_.empty(); }
  // Returns the root mean square of each neuron's contribution in the feed-forward sublayer `prefix`. [F]
  at::Tensor neurons(const TransformerModel& model, const std::string& prefix) const;
  // Returns the root mean square for each group of heads that share keys, whose squares are added. [kv]
  at::Tensor heads(const TransformerModel& model, const std::string& prefix) const;

 private:
  struct Sum {
    at::Tensor total;  // fp64: squares [F] of neurons, products [H,K,K] of heads' contexts
    int64_t positions = 0;
  };

  int64_t heads_;
  std::map<std::string, Sum> sums_;
};

}  // namespace draftsmith::model
