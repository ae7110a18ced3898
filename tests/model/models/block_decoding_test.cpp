// Decoding with block prediction and deep Tandems over caches, against passes over the whole text: rows at their own
// pace, ragged steps, prompts, rollbacks inside blocks, rows that leave or are repeated.
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "model/kinds/language_models.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/model/models/tandem_passes.h"
#include "tests/support/batches.h"
#include "tests/support/block_decoders.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

using Text = std::vector<int64_t>;

constexpr int64_t kCapacity = 60;

// Random steps, rollbacks and selections of rows, with a text for each row.
class Walk {
 public:
  Walk(BlockDecoder& decoder, double tolerance, uint64_t seed)
      : decoder_(decoder),
        tolerance_(tolerance),
        random_(seed),
        state_(decoder.model->begin(3, kCapacity)),
        texts_(3) {}

  void run(int moves) {
    append({41, 0, 5}, Logits::kAll);
    for (int i = 0; i < moves && !testing::Test::HasFailure(); ++i) {
      const uint64_t kind = random_() % 6;
      if (kind == 0) roll_back();
      if (kind == 1) select();
      if (kind > 1) append(random_counts(), kind < 4 ? Logits::kLast : Logits::kAll);
      for (size_t b = 0; b < texts_.size(); ++b) {
        ASSERT_EQ(state_->length(static_cast<int64_t>(b)), std::ssize(texts_[b]));
      }
    }
  }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  std::vector<int64_t> random_counts() {
    std::vector<int64_t> counts;
    for (const Text& text : texts_) counts.push_back(std::min<int64_t>(below(6), kCapacity - std::ssize(text)));
    return counts;
  }

  void append(const std::vector<int64_t>& counts, Logits logits) {
    std::vector<Text> added(texts_.size());
    for (size_t b = 0; b < texts_.size(); ++b) {
      for (int64_t i = 0; i < counts[b]; ++i) added[b].push_back(2 + below(29));
    }
    const at::Tensor found = decoder_.model->step(step_input(added, logits), *state_).logits;
    for (size_t b = 0; b < texts_.size(); ++b) {
      for (size_t j = 0; j < added[b].size(); ++j) {
        texts_[b].push_back(added[b][j]);
        if (logits == Logits::kAll) expect_next(found[static_cast<int64_t>(b)][static_cast<int64_t>(j)], texts_[b]);
      }
      if (logits == Logits::kLast && !added[b].empty()) expect_next(found[static_cast<int64_t>(b)][0], texts_[b]);
    }
  }

  void expect_next(const at::Tensor& logits, const Text& text) const {
    if (std::ssize(text) < decoder_.shortest) {
      EXPECT_EQ(largest(logits), 0) << decoder_.name;
    } else {
      EXPECT_LT(difference(logits.to(at::kDouble), decoder_.next_logits(text)), tolerance_)
          << decoder_.name << " after " << text.size();
    }
  }

  void roll_back() {
    std::vector<int64_t> lengths;
    for (Text& text : texts_) {
      lengths.push_back(below(std::ssize(text) + 3));
      text.resize(std::min(text.size(), static_cast<size_t>(lengths.back())));
    }
    state_->rollback(lengths);
  }

  void select() {
    std::vector<int64_t> rows;
    std::vector<Text> kept;
    for (int64_t i = 1 + below(4); i > 0; --i) {
      rows.push_back(below(std::ssize(texts_)));
      kept.push_back(texts_[static_cast<size_t>(rows.back())]);
    }
    state_->select_rows(rows);
    texts_ = kept;
  }

  BlockDecoder& decoder_;
  double tolerance_;
  std::mt19937_64 random_;
  std::unique_ptr<DecodeState> state_;
  std::vector<Text> texts_;
};

class BlockDecoding : public testing::TestWithParam<TransformerConfig> {};

TEST_P(BlockDecoding, StepsEqualPassesOverTheWholeText) {
  const at::NoGradGuard no_gradients;
  for (const int64_t block : {1, 3, 8}) {
    BlockDecoder blocks = block_decoder(GetParam(), block);
    Walk(blocks, 1e-11, 5).run(25);
    BlockDecoder deep = deep_decoder(GetParam(), smaller(GetParam()), block);
    Walk(deep, 1e-11, 6).run(25);
  }
}

// Packed weights take the kernels for CPUs.
TEST_P(BlockDecoding, LoadedModelsDecodeAlike) {
  const at::NoGradGuard no_gradients;
  const TemporaryDirectory root;
  TransformerConfig small = GetParam();  // smaller() has shapes that files cannot hold
  small.decoder_layers = 1;
  BlockDecoder blocks = block_decoder(GetParam(), 3);
  save_model(root / "blocks", dynamic_cast<const BlockPredictionModel&>(*blocks.model).transformer());
  blocks.model = load_language_model(root / "blocks");
  const auto reference = block_decoder(GetParam(), 3);
  blocks.next_logits = reference.next_logits;
  Walk(blocks, 2e-4, 7).run(25);
  BlockDecoder deep = deep_decoder(GetParam(), small, 3);
  save_deep_tandem(root / "deep", dynamic_cast<const DeepTandemModel&>(*deep.model));
  const auto same = deep_decoder(GetParam(), small, 3);
  deep.model = load_language_model(root / "deep");
  deep.next_logits = same.next_logits;
  Walk(deep, 2e-4, 8).run(25);
}

INSTANTIATE_TEST_SUITE_P(Families, BlockDecoding,
                         testing::Values(tiny_llama(3), tiny_gpt2(), tiny_neox(), tiny_bloom()), family_name);

TEST(BlockModels, SayWhatTheyConsistOf) {
  const BlockDecoder blocks = block_decoder(tiny_llama(3), 4);
  EXPECT_EQ(tokens_at_once(*blocks.model), 4);
  EXPECT_EQ(transformers_of(*blocks.model).size(), 1U);
  EXPECT_EQ(count_numbers(*blocks.model), count_numbers(block_prediction_config(tiny_llama(3), 4)));
  const BlockDecoder deep = deep_decoder(tiny_llama(3), smaller(tiny_llama(3)), 4);
  EXPECT_EQ(tokens_at_once(*deep.model), 1);
  EXPECT_EQ(transformers_of(*deep.model).size(), 2U);
  EXPECT_GT(count_numbers(*deep.model),
            count_numbers(smaller(tiny_llama(3))) + count_numbers(block_prediction_config(tiny_llama(3), 4)));
}

TEST(BlockModels, StatesHoldNoMoreThanTheirCapacity) {
  for (BlockDecoder& decoder :
       std::array{block_decoder(tiny_llama(2), 2), deep_decoder(tiny_llama(2), tiny_llama(2), 2)}) {
    const auto state = decoder.model->begin(1, 3);
    decoder.model->step(step_input({{2, 3, 4}}), *state);
    EXPECT_THROW(decoder.model->step(step_input({{5}}), *state), std::logic_error);
  }
}

TEST(BlockModels, TheTransformerOfBlocksReadsWholeBlocksAlone) {
  const auto model = varied_model(block_prediction_config(tiny_llama(2), 3), 1);
  const at::NoGradGuard no_gradients;
  const auto state = model->begin(1, 9);
  EXPECT_THROW(model->step(step_input({{2, 3}}), *state), std::logic_error);
  model->step(step_input({{2, 3, 4}}), *state);
  EXPECT_EQ(state->length(0), 3);
}

}  // namespace
}  // namespace draftsmith::model
