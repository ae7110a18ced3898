#include "model/pruning/pruning.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "model/transformer/draft_vocabulary.h"

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

namespace {

// Indices of the `kept` highest scores, rising.
at::Tensor highest(const at::Tensor& scores, int64_t kept) {
  return std::get<0>(std::get<1>(scores.topk(kept)).sort());
}

// Rows of heads `heads` of a projection whose heads have `width` rows.
at::Tensor rows_of(const at::Tensor& heads, int64_t width) {
  return (heads.unsqueeze(1) * width + at::arange(width, heads.options())).flatten();
}

class Pruner {
 public:
  Pruner(const TransformerModel& model, const PruneOptions& options, const PruneEvidence& evidence)
      : from_(model), config_(model.config()), options_(options), evidence_(evidence) {}

  std::unique_ptr<TransformerModel> run() {
    require_prunable(config_, options_, evidence_);
    for (const auto& [name, tensor] : from_.parameters()) {
      if (!is_block(name)) parameters_[name] = tensor.detach().to(at::kCPU, at::kFloat, false, true);
    }
    if (!evidence_.token_counts.empty()) prune_vocabulary();
    if (config_.encoder_decoder) prune_stack("encoder", options_.encoder_layers, config_.encoder_layers);
    prune_stack("decoder", options_.decoder_layers, config_.decoder_layers);
    config_.ff_width = ff_width();
    config_.kv_heads = config_.kv_heads > 0 ? heads() / group() : 0;
    config_.heads = heads();
    return std::make_unique<TransformerModel>(config_, std::move(parameters_));
  }

 private:
  int64_t ff_width() const { return options_.ff_width > 0 ? options_.ff_width : from_.config().ff_width; }
  int64_t heads() const { return options_.heads > 0 ? options_.heads : from_.config().heads; }
  // Queries that share a key head.
  int64_t group() const { return from_.config().heads / from_.config().key_value_heads(); }
  bool shares_heads() const { return from_.config().positions == Positions::kRelativeBias; }

  static bool is_block(const std::string& name) {
    return name.find("_attention.") != std::string::npos || name.find(".feed_forward.") != std::string::npos;
  }

  void prune_vocabulary() {
    const std::vector<int64_t>& counts = evidence_.token_counts;
    const std::vector<int64_t> special = ids_that_stay(config_, evidence_);
    int64_t size = static_cast<int64_t>(special.size());
    for (size_t id = 0; id < counts.size(); ++id) {
      size += counts[id] > 0 && !std::binary_search(special.begin(), special.end(), static_cast<int64_t>(id)) ? 1 : 0;
    }
    const std::vector<int64_t> ids = most_frequent_ids(counts, special, options_.vocabulary_size.value_or(size));
    config_.draft_vocabulary = {ids, evidence_.unknown ? *evidence_.unknown : nearest_to_the_others(ids, special)};
    const at::Tensor rows = at::tensor(ids, at::kLong);
    for (const char* name : {"embedding.weight", "head.weight"}) {
      if (has(name)) parameters_[name] = value(name).index_select(0, rows);
    }
  }

  // Returns the stand-in among `ids`, not a special one if there are others: the id whose embedding is nearest to the
  // mean of the removed ids.
  int64_t nearest_to_the_others(const std::vector<int64_t>& ids, const std::vector<int64_t>& special) const {
    std::vector<int64_t> candidates;
    std::set_difference(ids.begin(), ids.end(), special.begin(), special.end(), std::back_inserter(candidates));
    if (candidates.empty()) candidates = ids;
    const at::Tensor embedding = value("embedding.weight");  // [V,D]
    at::Tensor weights = at::tensor(evidence_.token_counts, at::kFloat);
    weights.index_fill_(0, at::tensor(ids, at::kLong), 0);
    if (weights.sum().item<double>() == 0) weights.fill_(1).index_fill_(0, at::tensor(ids, at::kLong), 0);
    const at::Tensor mean = weights.matmul(embedding) / weights.sum().clamp_min(1);
    const at::Tensor distances = (embedding.index_select(0, at::tensor(candidates, at::kLong)) - mean).norm(2, 1);
    return candidates[static_cast<size_t>(distances.argmin().item<int64_t>())];
  }

  at::Tensor value(const std::string& name) const {
    return from_.parameters().at(name).detach().to(at::kCPU, at::kFloat);
  }
  bool has(const std::string& name) const { return from_.parameters().contains(name); }

  void prune_stack(const std::string& stack, const std::string& choice, int64_t count) {
    const std::vector<int64_t> kept = layers_to_keep(choice, count, stack + "_layers");
    at::Tensor shared;  // heads of all layers, where they share one bias
    if (shares_heads() && heads() != from_.config().heads) {
      at::Tensor scores;
      for (const int64_t layer : kept) {
        const at::Tensor own = head_scores(fmt::format("{}.{}.self_attention", stack, layer));
        scores = scores.defined() ? scores + own : own;
      }
      shared = highest(scores, heads());
      const std::string bias = stack + ".relative_bias.weight";
      parameters_[bias] = parameters_.at(bias).index_select(1, shared);
    }
    for (size_t to = 0; to < kept.size(); ++to) {
      const std::string source = fmt::format("{}.{}", stack, kept[to]);
      const std::string target = fmt::format("{}.{}", stack, to);
      prune_attention(source + ".self_attention", target + ".self_attention", shared);
      if (has(source + ".cross_attention.query.weight")) {
        prune_attention(source + ".cross_attention", target + ".cross_attention", {});
      }
      prune_feed_forward(source + ".feed_forward", target + ".feed_forward");
    }
    (stack == "encoder" ? config_.encoder_layers : config_.decoder_layers) = static_cast<int64_t>(kept.size());
  }

  at::Tensor head_scores(const std::string& prefix) const {
    return evidence_.activations ? evidence_.activations->heads(from_, prefix) : head_magnitudes(from_, prefix);
  }

  at::Tensor neuron_scores(const std::string& prefix) const {
    return evidence_.activations ? evidence_.activations->neurons(from_, prefix) : neuron_magnitudes(from_, prefix);
  }

  void copy(const std::string& from, const std::string& to, const at::Tensor& index, int64_t dimension) {
    if (!has(from)) return;
    const at::Tensor tensor = value(from);
    parameters_[to] =
        index.defined() && dimension < tensor.dim() ? tensor.index_select(dimension, index) : tensor.clone();
  }

  void prune_attention(const std::string& from, const std::string& to, const at::Tensor& shared) {
    at::Tensor groups = shared;
    if (!groups.defined() && heads() != from_.config().heads) groups = highest(head_scores(from), heads() / group());
    at::Tensor rows;        // of keys and values
    at::Tensor query_rows;  // of queries, and columns of the output
    if (groups.defined()) {
      rows = rows_of(groups, from_.config().head_width);
      query_rows = rows_of(groups, group() * from_.config().head_width);
    }
    for (const char* kind : {".weight", ".bias"}) {
      copy(from + ".norm" + kind, to + ".norm" + kind, {}, 0);
      copy(from + ".query" + kind, to + ".query" + kind, query_rows, 0);
      copy(from + ".key" + kind, to + ".key" + kind, rows, 0);
      copy(from + ".value" + kind, to + ".value" + kind, rows, 0);
      copy(from + ".output" + kind, to + ".output" + kind, query_rows, 1);
    }
  }

  void prune_feed_forward(const std::string& from, const std::string& to) {
    at::Tensor neurons;
    if (ff_width() != from_.config().ff_width) neurons = highest(neuron_scores(from), ff_width());
    for (const char* kind : {".weight", ".bias"}) {
      copy(from + ".norm" + kind, to + ".norm" + kind, {}, 0);
      copy(from + ".gate" + kind, to + ".gate" + kind, neurons, 0);
      copy(from + ".up" + kind, to + ".up" + kind, neurons, 0);
      copy(from + ".down" + kind, to + ".down" + kind, neurons, 1);
    }
  }

  const TransformerModel& from_;
  TransformerConfig config_;
  const PruneOptions& options_;
  const PruneEvidence& evidence_;
  std::map<std::string, at::Tensor> parameters_;
};

}  // namespace

std::unique_ptr<TransformerModel> prune(const TransformerModel& model, const PruneOptions& options,
                                        const PruneEvidence& evidence) {
  const at::NoGradGuard no_grad;
  return Pruner(model, options, evidence).run();
}

}  // namespace draftsmith::model
