// Small models of block prediction and deep Tandems as language models, beside slow references of them: the logits of
// each next token by a pass over the whole text, without any state between tokens.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/models/block_models.h"
#include "model/models/deep_tandem.h"
#include "tests/support/models.h"

namespace draftsmith::model {

struct BlockDecoder {
  std::string name;
  int64_t block = 1;     // γ
  int64_t shortest = 1;  // text after which something is predicted
  std::unique_ptr<LanguageModel> model;
  std::function<at::Tensor(const std::vector<int64_t>& text)> next_logits;  // [V]
};

inline TokenBatch whole_text(const std::vector<int64_t>& text, int64_t length) {
  return {at::tensor(text, at::kLong).narrow(0, 0, length).unsqueeze(0), {length}};
}

// The token after n others is predicted by the state of the token γ before it, in a text of whole blocks.
inline BlockDecoder block_decoder(const TransformerConfig& config, int64_t block, uint64_t seed = 4,
                                  at::Device device = at::kCPU) {
  auto transformer = varied_model(block_prediction_config(config, block), seed);
  transformer->to(device, at::kDouble);
  transformer->requires_grad(false);
  TransformerModel& blocks = *transformer;
  const auto next_logits = [&blocks, block](const std::vector<int64_t>& text) {
    ForwardInput input{.target = whole_text(text, std::ssize(text) / block * block)};
    return blocks.head(blocks.forward(input).hidden[0][std::ssize(text) - block]);
  };
  return {"blocks of " + std::to_string(block) + ", " + config.family, block, block,
          std::make_unique<BlockPredictionModel>(std::move(transformer)), next_logits};
}

inline BlockDecoder deep_decoder(const TransformerConfig& large, const TransformerConfig& small, int64_t block,
                                 uint64_t seed = 4, at::Device device = at::kCPU) {
  const at::Tensor projection = normal_tensor({small.width, large.width}, 0.5, 3, "projection", at::kDouble);
  auto model = std::make_unique<DeepTandemModel>(varied_model(block_prediction_config(large, block), seed),
                                                 varied_model(small, seed + 1), projection);
  model->to(device, at::kDouble);
  model->requires_grad(false);
  DeepTandemModel& deep = *model;
  const auto next_logits = [&deep](const std::vector<int64_t>& text) {
    return deep.head(deep.forward(whole_text(text, std::ssize(text)))[0][std::ssize(text) - 1]);
  };
  return {"deep, blocks of " + std::to_string(block) + ", " + large.family, block, 1, std::move(model), next_logits};
}

}  // namespace draftsmith::model
