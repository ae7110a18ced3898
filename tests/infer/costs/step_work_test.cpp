// Bytes and operations of decoding, against counts by hand.
#include <gtest/gtest.h>

#include "infer/costs/decode_work.h"
#include "tests/support/models.h"

namespace draftsmith::infer::testing {
namespace {

// In a decoder layer of t5_config(): 1024 numbers in self-attention's matrices, 512 in cross-attention's without keys
// and values, 1024 in the feed-forward layer's, 48 in norms. Two layers, 16 in the last norm, 640 in the head.
TEST(StepWork, AStepReadsDecoderAndHead) {
  const model::TransformerConfig config = model::t5_config();
  EXPECT_EQ(step_weight_bytes(config, at::kFloat), 4 * 5872);
  EXPECT_EQ(step_weight_bytes(config, at::kBFloat16), 2 * 5872);
  EXPECT_EQ(step_weight_bytes(config, at::kHalf), 2 * 5872 + 2 * 2 * 512);  // `wo` stays fp32
  // 5,760 numbers in matrices with 328 outputs, 112 in vectors.
  EXPECT_EQ(step_weight_bytes(config, at::kChar), 5760 + 4 * 328 + 4 * 112);
}

TEST(StepWork, AHeadThatIsTheEmbeddingIsRead) {
  model::TransformerConfig config = model::t5_config();
  const int64_t own = step_weight_bytes(config, at::kFloat);
  config.tied_head = true;
  EXPECT_EQ(step_weight_bytes(config, at::kFloat), own);
  config.draft_vocabulary.ids = {1, 5, 6};
  EXPECT_EQ(step_weight_bytes(config, at::kFloat), own - 4 * 37 * 16);
}

TEST(StepWork, CountsRowsTokensAndTheCache) {
  const Work work = step_work(model::t5_config(), at::kFloat, {.rows = 2, .tokens = 3, .length = 10, .source = 5});
  EXPECT_EQ(work.weight_bytes, 4 * 5872);
  EXPECT_EQ(work.cache_bytes, 2 * (10 + 3 + 5) * (2 * 2 * 16 * 4));
  // 5,760 numbers for 6 tokens; a query meets 12 keys of its own on average and 5 of the source, in 2 layers and rows.
  EXPECT_EQ(work.operations, 2 * 6 * 5760 + 2 * 2 * (4 * 3 * 17 * 16));
  EXPECT_EQ(work.bytes(), work.weight_bytes + work.cache_bytes);
}

TEST(StepWork, CountsWhatComesBeforeTheFirstToken) {
  const model::TransformerConfig t5 = model::t5_config();
  const Work encoder = encoder_work(t5, at::kFloat, 2, 5);
  EXPECT_EQ(encoder.weight_bytes, 4 * (2048 + 48));
  EXPECT_EQ(encoder.operations, 2 * 10 * 2048 + 2 * (4 * 5 * 5 * 16));
  const Work cross = cross_attention_work(t5, at::kFloat, 2, 5);
  EXPECT_EQ(cross.weight_bytes, 4 * 1024);
  EXPECT_EQ(cross.operations, 2 * 10 * 1024);
  // 2,560 numbers in the matrices of a layer; token t sees t others.
  const Work prompt = prompt_work(model::llama_config(), at::kFloat, 1, 4);
  EXPECT_EQ(prompt.operations, 2 * 4 * 5120 + 2 * (4 * (1 + 2 + 3 + 4) * 16));
}

}  // namespace
}  // namespace draftsmith::infer::testing
