// The router of adaptive windows (Nair et al., Tandem Transformers, §3; methods.md §1 "Adaptive γ"): a 2-layer
// perceptron that predicts, after a token was drafted, how likely the target is to disagree, from the drafter's
// distribution q at that position:
//   h = relu(W_s [H(q) / ln V, q(y_1), .., q(y_k)] + sum_i s W_e^(i) E(y_i) + b),
//   P(disagreement) = sigmoid(w h + c)
// y_1..y_k are q's most likely tokens, E(y) the embeddings that the drafter reads, H the entropy, s a fixed scale that
// brings embeddings to unit length. q is at temperature 1, nothing cut, whatever decoding samples at. A router
// directory: config.json and model.safetensors. It belongs to one drafter, which it knows by model_hash().
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/aten.h"
#include "model/transformer/transformer_model.h"

namespace draftsmith::model {

constexpr int64_t kMostRouterTokens = 64;  // k
constexpr int64_t kMostRouterHidden = 4096;
constexpr int64_t kMostRouterDraft = 256;  // max_draft

struct RouterConfig {
  int64_t top_k = 4;             // k
  int64_t hidden = 32;           // width of the hidden layer
  int64_t width = 0;             // D of the drafter's embeddings
  int64_t vocabulary = 0;        // V of the drafter
  double embedding_scale = 1.0;  // s
  std::string drafter;           // its directory when the router was trained, for messages
  std::string drafter_hash;      // model_hash() of it: 64 hex digits
  double threshold = 0.8;        // default: drafting ends when the predicted acceptance falls below
  int64_t max_draft = 16;        // default: most tokens of a draft
};

// Inputs of the router at N positions. Slots for which the drafter has no further possible token hold id -1 and
// probability 0.
struct RouterFeatures {
  at::Tensor entropy;        // fp32 [N], nats
  at::Tensor probabilities;  // fp32 [N,k], falling
  at::Tensor ids;            // int64 [N,k]
};

class Router {
 public:
  // Makes random weights that depend on the seed alone.
  Router(RouterConfig config, uint64_t seed);
  // Takes parameters scalars.weight [H,1+k], embeddings.weight [H,k*D], hidden.bias [H], output.weight [H] and
  // output.bias [1], fp32. Errors: UserError naming what is missing, unknown, misshapen or not finite. `where`: for
  // messages.
  Router(RouterConfig config, std::map<std::string, at::Tensor> parameters, const std::string& where);

  const RouterConfig& config() const { return config_; }
  const std::map<std::string, at::Tensor>& parameters() const { return parameters_; }
  // Returns logits of disagreement [N], with gradients for the parameters. `embeddings`: fp32 [N,k,D] of the features'
  // ids; embeddings of empty slots are ignored.
  at::Tensor logits(const RouterFeatures& features, const at::Tensor& embeddings) const;
  // Returns the logits [N] from the summed products of embeddings and first layer [N,H].
  at::Tensor logits_of(const RouterFeatures& features, const at::Tensor& products) const;

 private:
  RouterConfig config_;
  std::map<std::string, at::Tensor> parameters_;
};

// Writes a router directory. Errors: UserError as save_model's: something lies at `directory` already; RunError for
// weights that are not finite.
void save_router(const std::filesystem::path& directory, const Router& router);
// Loads a router directory. Errors: UserError naming every problem of the directory.
Router load_router(const std::filesystem::path& directory);
// Returns whether a directory's config.json says that it is a router.
bool is_router(const std::filesystem::path& directory);
// Returns the description that `draftsmith inspect` prints, several lines.
std::string describe_router(const Router& router);

// Refuses a router that was trained for another drafter than the one in this directory, whose weights it hashes.
// Errors: UserError naming both.
void require_router_fits(const Router& router, const std::filesystem::path& directory,
                         const std::filesystem::path& drafter);

// A router ready to decide: bound to its drafter's embeddings, on the drafter's device. On a CPU the products of the
// embedding table with the first layer are computed once, [V,k,H], where they fit in `table_bytes`, so that a decision
// is k rows to add and a few hundred multiplications; else the k embeddings are looked up and multiplied.
class RouterPredictor {
 public:
  static constexpr int64_t kTableBytes = 512'000'000;

  // The model must outlive the predictor. Errors: UserError for one of another width or vocabulary.
  RouterPredictor(const Router& router, const TransformerModel& drafter, int64_t table_bytes = kTableBytes);

  const RouterConfig& config() const { return router_.config(); }
  // Returns the probability of disagreement at one position, on the CPU. `ids` and `probabilities`: k.
  double disagreement(double entropy, std::span<const float> probabilities, std::span<const int64_t> ids) const;
  // Returns the probabilities at N positions, on any device: fp32 [N].
  at::Tensor disagreement(const RouterFeatures& features) const;

 private:
  at::Tensor embeddings(const at::Tensor& ids) const;

  Router router_;
  const TransformerModel& drafter_;
  at::Tensor table_;                   // fp32 [V,k,H]; undefined: too large, or not on the CPU
  std::vector<at::Tensor> slots_;      // k of [H,D]
  std::vector<float> scalar_weights_;  // [1+k,H]: transposed, so that a row is added at a time
  std::vector<float> bias_;            // [H]
  std::vector<float> output_;          // [H]
  float output_bias_ = 0;
};

}  // namespace draftsmith::model
