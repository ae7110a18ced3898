// Pruning cuts a smaller model out of a trained one. Layers are chosen by the options; feed-forward neurons and heads
// by their weights or by their contribution on calibration text; the vocabulary by token counts
// (model/transformer/draft_vocabulary.h). The result is an ordinary model, ready for alignment or distillation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/aten.h"
#include "base/options.h"
#include "model/layers/activation_observer.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

// ---- Scores of neurons and heads
// By their weights (Han et al. 2015; Michel et al. 2019 for heads), or by their contribution to the residual stream on
// calibration text. The contribution is the root mean square over positions of the vector that a neuron or head adds.
// For neurons that is Wanda's |activation| * |weight| (Sun et al. 2024).

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

// ---- Pruned models

struct PruneOptions {
  std::string encoder_layers = {};  // which layers stay, see layers_to_keep; empty: all
  std::string decoder_layers = {};
  int64_t ff_width = 0;                                       // neurons that stay in each layer; 0: all
  int64_t heads = 0;                                          // heads that stay in each layer; 0: all
  std::string by = "magnitude";                               // what neurons and heads are chosen by
  std::optional<std::filesystem::path> calibration = {};      // corpus that activations are measured on
  std::optional<int64_t> calibration_examples = {};           // examples of it that are used; absent: 512
  std::optional<std::filesystem::path> vocabulary_from = {};  // corpus whose tokens are counted
  std::optional<int64_t> vocabulary_size = {};                // ids that stay; absent: those that occur
  static Fields<PruneOptions> fields();
};

// Measurements and tokens that the options refer to. The caller reads and measures them.
struct PruneEvidence {
  const ActivationMoments* activations = nullptr;  // by = "activation"
  std::vector<int64_t> token_counts = {};          // [V] of vocabulary_from; empty: the vocabulary stays
  std::vector<int64_t> special_ids = {};           // of the tokenizer: they stay, with those of the configuration
  std::optional<int64_t> unknown = {};             // the tokenizer's unknown token, stand-in for ids that go
};

// Returns the indices of the layers that stay, of `count`: "first:N" keeps the first N, "every:K" layers 0, K, 2K, ...,
// and a list "0,2,5" in rising order those layers; an empty choice keeps all. Errors: UserError at `where` for anything
// else, and for layers that do not exist.
std::vector<int64_t> layers_to_keep(const std::string& choice, int64_t count, const std::string& where);

// Returns the ids that stay whatever the counts, rising.
std::vector<int64_t> ids_that_stay(const TransformerConfig& config, const PruneEvidence& evidence);

// Checks the options against a model's configuration and the evidence's special ids. Callers whose other measurements
// take long call it first. Errors: those of prune(), all at once.
void require_prunable(const TransformerConfig& config, const PruneOptions& options, const PruneEvidence& evidence);

// Returns the pruned model with fp32 parameters of its own. Neurons, and heads of Llama (whole groups that share keys),
// are chosen in each layer separately; T5's heads, which share one bias of positions, are the same in all layers of a
// stack. Order is kept. The vocabulary keeps the most frequent ids and all special ones. The stand-in for the other ids
// is the unknown token or, if there is none, the token whose embedding is nearest to the mean of the removed ids,
// weighted by their counts. Errors (UserError): more than the model has, shapes that the family's files cannot hold, a
// number of heads that splits a group, encoder layers of a model without an encoder, a vocabulary smaller than the
// special ids or already pruned.
std::unique_ptr<TransformerModel> prune(const TransformerModel& model, const PruneOptions& options,
                                        const PruneEvidence& evidence = {});

}  // namespace draftsmith::model
