// Block prediction and deep Tandem: what each hidden state may read, alone, in ragged batches and in packed rows;
// decoding over caches against passes over the whole text; directories.
#include "model/models/block_models.h"

#include <algorithm>
#include <random>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include "base/files.h"
#include "base/json.h"
#include "base/random_tensors.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/files/write_weights.h"
#include "model/models/deep_tandem.h"
#include "model/models/language_models.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/model/models/tandem_passes.h"
#include "tests/support/batches.h"
#include "tests/support/block_decoders.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

std::vector<TransformerConfig> decoder_only() {
  return {tiny_llama(3), tiny_gpt2(), tiny_neox(), tiny_bloom()};
}

at::Tensor hidden_of(TransformerModel& model, const TokenBatch& batch) {
  ForwardInput input{.target = batch};
  return model.forward(input).hidden;
}

at::Tensor hidden_of(DeepTandemModel& model, const TokenBatch& batch) {
  return model.forward(batch);
}

// The rows of a batch one after the other in one row, and each alone.
template <class Model>
void expect_rows_alone_together_and_packed_are_equal(Model& model, const TokenBatch& batch) {
  const at::Tensor together = hidden_of(model, batch);
  std::vector<at::Tensor> tokens;
  int64_t total = 0;
  for (int64_t b = 0; b < batch.tokens.size(0); ++b) {
    tokens.push_back(single(batch, b).tokens);
    total += tokens.back().size(1);
  }
  const at::Tensor packed = hidden_of(model, TokenBatch{at::cat(tokens, 1), {total}, {batch.lengths}});
  int64_t place = 0;
  for (int64_t b = 0; b < batch.tokens.size(0); ++b) {
    const int64_t length = batch.lengths[static_cast<size_t>(b)];
    const at::Tensor alone = hidden_of(model, single(batch, b))[0];
    EXPECT_LT(difference(together[b].narrow(0, 0, length), alone), 1e-11) << b;
    EXPECT_LT(difference(packed[0].narrow(0, place, length), alone), 1e-11) << b;
    place += length;
  }
}

class BlockPrediction : public testing::TestWithParam<TransformerConfig> {
 protected:
  static std::unique_ptr<TransformerModel> model(int64_t block) {
    return varied_model(block_prediction_config(GetParam(), block), 4);
  }
  TokenBatch row_ = random_batch({13}, 31, 6);
};

TEST_P(BlockPrediction, TokensSeeTheirWholeBlockAndNothingLater) {
  for (const int64_t block : {1, 3, 4, 8}) {
    const auto model = BlockPrediction::model(block);
    const at::Tensor whole = hidden_of(*model, row_)[0];
    for (int64_t t = 0; t < 13; ++t) {
      TokenBatch changed{row_.tokens.clone(), row_.lengths};
      changed.tokens[0][t] = row_.tokens[0][t].item<int64_t>() == 5 ? 6 : 5;
      const at::Tensor after = hidden_of(*model, changed)[0];
      const int64_t first = t / block * block;  // the first token that may see it
      EXPECT_EQ(difference(after.narrow(0, 0, first), whole.narrow(0, 0, first)), 0) << block << " " << t;
      for (int64_t s = first; s < 13; ++s) EXPECT_GT(difference(after[s], whole[s]), 1e-8) << block << " " << t;
    }
  }
}

TEST_P(BlockPrediction, BlocksOfOneTokenAreTheOrdinaryModel) {
  const auto model = BlockPrediction::model(1);
  TransformerModel ordinary(GetParam(), model->parameters());
  EXPECT_LT(difference(hidden_of(*model, row_), hidden_of(ordinary, row_)), 1e-12);
}

TEST_P(BlockPrediction, RowsAloneTogetherAndPackedAreEqual) {
  expect_rows_alone_together_and_packed_are_equal(*model(3), random_batch({7, 13, 1, 6}, 31, 8));
}

INSTANTIATE_TEST_SUITE_P(Families, BlockPrediction, testing::ValuesIn(decoder_only()), family_name);

class DeepTandem : public testing::TestWithParam<TransformerConfig> {
 protected:
  static std::unique_ptr<DeepTandemModel> model(int64_t block) {
    const TransformerConfig small = smaller(GetParam());
    const at::Tensor projection = normal_tensor({small.width, GetParam().width}, 0.5, 3, "projection", at::kDouble);
    return std::make_unique<DeepTandemModel>(varied_model(block_prediction_config(GetParam(), block), 4),
                                             varied_model(small, 5), projection);
  }
  TokenBatch row_ = random_batch({13}, 31, 6);
};

TEST_P(DeepTandem, PassEqualsRecomputationTokenByToken) {
  for (const int64_t block : {1, 2, 5}) {
    const auto deep = model(block);
    const at::Tensor whole = hidden_of(*deep, row_)[0];
    for (int64_t length = 1; length <= 13; ++length) {
      const TokenBatch prefix{row_.tokens.narrow(1, 0, length), {length}};
      const at::Tensor last = hidden_of(*deep, prefix)[0][length - 1];
      EXPECT_LT(difference(last, whole[length - 1]), 1e-11) << block << " " << length;
    }
  }
}

// Equation (4) by hand: the sketch for the state at s is the large part's at s - γ + 1; the first γ - 1 have none.
TEST_P(DeepTandem, SketchesAreAddedToTheSmallPartsEmbeddings) {
  const auto deep = model(4);
  const auto large = varied_model(block_prediction_config(GetParam(), 4), 4);
  const auto small = varied_model(smaller(GetParam()), 5);
  const at::Tensor ahead = at::linear(hidden_of(*large, row_), deep->projection());
  ForwardInput input{.target = row_};
  const at::Tensor plain = small->forward(input).hidden;
  input.added = at::cat({at::zeros({1, 3, ahead.size(2)}, at::kDouble), ahead.narrow(1, 0, 10)}, 1);
  const at::Tensor found = hidden_of(*deep, row_);
  EXPECT_LT(difference(found, small->forward(input).hidden), 1e-12);
  EXPECT_LT(difference(found.narrow(1, 0, 3), plain.narrow(1, 0, 3)), 1e-12);
  EXPECT_GT(difference(found[0][3], plain[0][3]), 1e-3);
}

TEST_P(DeepTandem, RowsAloneTogetherAndPackedAreEqual) {
  expect_rows_alone_together_and_packed_are_equal(*model(3), random_batch({7, 13, 1, 6}, 31, 8));
}

INSTANTIATE_TEST_SUITE_P(Families, DeepTandem, testing::ValuesIn(decoder_only()), family_name);

TEST(Shifted, LabelsOfOneSegmentStayInIt) {
  const at::Tensor labels = at::arange(1, 8, at::kLong).unsqueeze(0);
  const TokenBatch packed{at::zeros({1, 7}, at::kLong), {6}, {{2, 4}}};
  const auto list = [](const at::Tensor& row) {
    return std::vector<int64_t>(row.const_data_ptr<int64_t>(), row.const_data_ptr<int64_t>() + row.numel());
  };
  EXPECT_EQ(list(shifted(labels, packed, 1, -1)), (std::vector<int64_t>{2, -1, 4, 5, 6, -1, -1}));
  EXPECT_EQ(list(shifted(labels, packed, -2, -1)), (std::vector<int64_t>{-1, -1, -1, -1, 3, 4, -1}));
  const TokenBatch plain{at::zeros({1, 7}, at::kLong), {5}};
  EXPECT_EQ(list(shifted(labels, plain, 2, -1)), (std::vector<int64_t>{3, 4, 5, -1, -1, -1, -1}));
}

class BlockDirectories : public testing::Test {
 protected:
  TemporaryDirectory root_;
  DeepTandemModel deep_{{tiny_llama(3), smaller(tiny_llama(3)), 3}, 7};
};

TEST_F(BlockDirectories, BlockPredictionIsReadBackAndTakenForNothingElse) {
  const TransformerModel model(block_prediction_config(tiny_gpt2(), 8), 3);
  save_model(root_ / "model", model);
  const auto again = load_model(ModelDirectory(root_ / "model", block_prediction_kind()), {.pack = false});
  EXPECT_EQ(again->config().block_attention, 8);
  for (const auto& [name, value] : model.parameters()) EXPECT_EQ(difference(again->parameters().at(name), value), 0);
  EXPECT_THAT(error_of([&] { load_model(root_ / "model"); }), HasSubstr("block prediction"));
  EXPECT_EQ(load_json(root_ / "model" / "config.json").at("model_type"), "draftsmith_block_prediction");
  patch_config(root_ / "model", {{"draftsmith_block_prediction", {{"block", 0}}}});
  EXPECT_THAT(error_of([&] { load_model(ModelDirectory(root_ / "model", block_prediction_kind())); }),
              HasSubstr("block"));
}

TEST_F(BlockDirectories, DeepTandemIsReadBackAndTakenForNothingElse) {
  save_deep_tandem(root_ / "deep", deep_);
  const auto again = load_deep_tandem(root_ / "deep", {.pack = false});
  const auto parameters = again->parameters();
  ASSERT_EQ(parameters.size(), deep_.parameters().size());
  for (const auto& [name, value] : deep_.parameters()) EXPECT_EQ(difference(parameters.at(name), value), 0) << name;
  EXPECT_EQ(again->block(), 3);
  EXPECT_THAT(error_of([&] { load_model(root_ / "deep"); }), HasSubstr("a deep Tandem"));
  save_model(root_ / "ordinary", deep_.small());
  EXPECT_THAT(error_of([&] { load_deep_tandem(root_ / "ordinary"); }), HasSubstr("a deep Tandem"));
  EXPECT_THAT(error_of([&] { load_deep_tandem(root_ / "nothing"); }), HasSubstr("no such model directory"));
}

TEST_F(BlockDirectories, DamagedDeepTandemIsRefused) {
  save_deep_tandem(root_ / "deep", deep_);
  fs::remove(root_ / "deep" / "model.safetensors");
  write_weight_files(root_ / "deep", {{"projection.weight", at::zeros({3, 4}), at::kFloat}}, 1000000);
  EXPECT_THAT(error_of([&] { load_deep_tandem(root_ / "deep"); }),
              AllOf(HasSubstr("projection.weight"), HasSubstr("[16, 12]"), HasSubstr("[3, 4]")));
  fs::remove_all(root_ / "deep" / "large");
  EXPECT_THAT(error_of([&] { load_deep_tandem(root_ / "deep"); }), HasSubstr("large"));
}

TEST_F(BlockDirectories, PartsThatDoNotFitAreRefused) {
  TransformerConfig other = smaller(tiny_llama(3));
  other.vocabulary = 40;
  EXPECT_THAT(error_of([&] {
                DeepTandemModel({tiny_llama(3), other, 3}, 1);
              }),
              AllOf(HasSubstr("vocabulary"), HasSubstr("40"), HasSubstr("31")));
  EXPECT_THAT(error_of([&] {
                DeepTandemModel({tiny_llama(3), smaller(tiny_llama(3)), 0}, 1);
              }),
              HasSubstr("at least one token"));
  EXPECT_THAT(error_of([&] { DeepTandemModel({tiny_t5(), smaller(tiny_t5()), 2}, 1); }), HasSubstr("decoder-only"));
}

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
  blocks.model = load_language_model(root / "blocks").model;
  const auto reference = block_decoder(GetParam(), 3);
  blocks.next_logits = reference.next_logits;
  Walk(blocks, 2e-4, 7).run(25);
  BlockDecoder deep = deep_decoder(GetParam(), small, 3);
  save_deep_tandem(root / "deep", dynamic_cast<const DeepTandemModel&>(*deep.model));
  const auto same = deep_decoder(GetParam(), small, 3);
  deep.model = load_language_model(root / "deep").model;
  deep.next_logits = same.next_logits;
  Walk(deep, 2e-4, 8).run(25);
}

INSTANTIATE_TEST_SUITE_P(Families, BlockDecoding, testing::ValuesIn(decoder_only()), family_name);

}  // namespace
}  // namespace draftsmith::model
