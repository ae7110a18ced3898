// Encoders of packed models on CPUs against those of plain ones.
#include "model/transformer/cpu_encoder.h"

#include <gtest/gtest.h>

#include "tests/support/batches.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

std::vector<TransformerConfig> encoders() {
  const TransformerConfig wide =
      t5_config({.vocabulary = 23, .width = 96, .heads = 3, .head_width = 32, .ff_width = 200, .encoder_layers = 2});
  return {tiny_t5(), tiny_mt5(), wide};
}

TEST(CpuEncoder, EqualsThePlainModels) {
  for (const TransformerConfig& config : encoders()) {
    const auto model = tiny_model(config, at::kFloat);
    for (const std::vector<int64_t>& lengths :
         {std::vector<int64_t>{7}, {1}, {2}, {40, 3, 0, 17}, {257, 4, 256, 255}, {300}, {1000, 300, 1}}) {
      const TokenBatch source = random_batch(lengths, 23, 1);
      model->unpack();
      const at::Tensor plain = model->encode(source).hidden;
      model->pack();
      const at::Tensor packed = model->encode(source).hidden;
      ASSERT_EQ(plain.sizes(), packed.sizes());
      EXPECT_TRUE(packed.isfinite().all().item<bool>());
      for (size_t b = 0; b < lengths.size(); ++b) {
        const auto row = static_cast<int64_t>(b);
        EXPECT_TRUE(at::allclose(plain[row].narrow(0, 0, lengths[b]), packed[row].narrow(0, 0, lengths[b]), 1e-4, 1e-5))
            << config.family << " " << b;
      }
    }
  }
}

TEST(CpuEncoder, GivesARowTheSameBitsAlone) {
  for (const TransformerConfig& config : encoders()) {
    const auto model = tiny_model(config, at::kFloat);
    model->pack();
    const std::vector<int64_t> lengths{30, 3, 17, 1, 600, 257};
    const TokenBatch source = random_batch(lengths, 23, 2);
    const at::Tensor together = model->encode(source).hidden;
    for (size_t b = 0; b < lengths.size(); ++b) {
      const auto row = static_cast<int64_t>(b);
      const TokenBatch alone{source.tokens.narrow(0, row, 1).narrow(1, 0, lengths[b]).contiguous(), {lengths[b]}};
      EXPECT_TRUE(at::equal(model->encode(alone).hidden[0], together[row].narrow(0, 0, lengths[b]))) << config.family;
    }
  }
}

}  // namespace
}  // namespace draftsmith::model
