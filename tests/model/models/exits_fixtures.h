// Models and exits of every form that the tests of exits share.
#pragma once

#include <ATen/core/grad_mode.h>

#include "model/models/exits.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {

// As one matrix. [rows,D]
inline at::Tensor dense(const HeadWeights& head) {
  return head.up.defined() ? head.weight + head.up.matmul(head.down) : head.weight;
}

// An encoder-decoder with RMS norms and the output scale that files can hold.
inline TransformerConfig exits_t5() {
  TransformerConfig config = tiny_t5();
  config.output_scale = 1 / std::sqrt(static_cast<double>(config.width));
  return config;
}

inline TransformerConfig exits_pruned_llama() {
  TransformerConfig config = tiny_llama(3);
  config.draft_vocabulary = {.ids = {0, 1, 2, 5, 9, 30}, .stand_in = 2};
  return config;
}

// An exit of each form, with and without a norm of its own, as far as the layers go.
inline ExitConfig forms_for(const TransformerConfig& config, size_t first = 0) {
  const std::vector<ExitShape> forms = {{.head = ExitHead::kLowRank, .rank = 2, .own_norm = true},
                                        {.head = ExitHead::kFull},
                                        {.head = ExitHead::kShared, .own_norm = true},
                                        {.head = ExitHead::kLowRank, .rank = 3},
                                        {.head = ExitHead::kFull, .own_norm = true},
                                        {.head = ExitHead::kShared}};
  ExitConfig exits{.trained_as = "heads", .model = "work/target/model"};
  for (int64_t layer = 1; layer <= config.decoder_layers; ++layer) {
    exits.exits.push_back(forms[(first + static_cast<size_t>(layer) - 1) % forms.size()]);
    exits.exits.back().layer = layer;
  }
  return exits;
}

// As if trained: every number is another one than at first.
inline void disturb(const Exits& exits) {
  at::Generator generator = at::detail::createCPUGenerator(3);
  const at::NoGradGuard no_gradients;
  for (const auto& [name, value] : exits.parameters()) {
    value.add_(at::randn(value.sizes(), generator, at::kDouble).mul_(0.3).to(value.scalar_type()));
  }
}

inline at::Tensor random_hidden(const TransformerConfig& config, at::ScalarType type) {
  return at::randn({2, 3, config.width}, at::detail::createCPUGenerator(11), at::kDouble).mul_(1.7).to(type);
}

}  // namespace draftsmith::model
