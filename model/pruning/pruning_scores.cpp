#include "model/pruning/pruning_scores.h"

namespace draftsmith::model {

namespace {

at::Tensor value(const TransformerModel& model, const std::string& name, at::ScalarType type = at::kFloat) {
  return model.parameters().at(name).detach().to(at::kCPU, type);
}

}  // namespace

at::Tensor neuron_magnitudes(const TransformerModel& model, const std::string& prefix) {
  at::Tensor scores = value(model, prefix + ".up.weight").norm(2, 1) * value(model, prefix + ".down.weight").norm(2, 0);
  if (!model.config().gated) return scores;
  return scores * value(model, prefix + ".gate.weight").norm(2, 1);
}

at::Tensor head_magnitudes(const TransformerModel& model, const std::string& prefix) {
  const int64_t shared = model.config().key_value_heads();
  const at::Tensor values = value(model, prefix + ".value.weight").view({shared, -1}).norm(2, 1);
  const at::Tensor outputs = value(model, prefix + ".output.weight").t().reshape({shared, -1}).norm(2, 1);
  return values * outputs;
}

void ActivationMoments::add(const std::string& sublayer, const at::Tensor& input) {
  const at::Tensor flat = input.detach().reshape({-1, input.size(-1)}).to(at::kDouble);  // [B*T,F]
  at::Tensor added;
  if (sublayer.ends_with(".feed_forward")) {
    added = flat.square().sum(0);
  } else {
    const at::Tensor contexts = flat.view({flat.size(0), heads_, -1}).transpose(0, 1);  // [H,B*T,K]
    added = contexts.transpose(1, 2).bmm(contexts);                                     // [H,K,K]
  }
  Sum& sum = sums_[sublayer];
  sum.total = sum.total.defined() ? sum.total.add_(added) : added;
  sum.positions += flat.size(0);
}

at::Tensor ActivationMoments::neurons(const TransformerModel& model, const std::string& prefix) const {
  const Sum& sum = sums_.at(prefix);
  const at::Tensor activations = (sum.total.cpu() / static_cast<double>(sum.positions)).sqrt();
  return activations * value(model, prefix + ".down.weight", at::kDouble).norm(2, 0);
}

at::Tensor ActivationMoments::heads(const TransformerModel& model, const std::string& prefix) const {
  const Sum& sum = sums_.at(prefix);
  const at::Tensor output = value(model, prefix + ".output.weight", at::kDouble);                  // [D,H*K]
  const at::Tensor weights = output.view({output.size(0), heads_, -1}).transpose(0, 1);            // [H,D,K]
  const at::Tensor squares = (weights.bmm(sum.total.cpu()) * weights).sum({1, 2}).clamp_min(0.0);  // [H]
  const int64_t shared = model.config().key_value_heads();
  return (squares.view({shared, -1}).sum(1) / static_cast<double>(sum.positions)).sqrt();
}

}  // namespace draftsmith::model
