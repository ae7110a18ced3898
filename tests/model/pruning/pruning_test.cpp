// Pruning: what is cut, and by what; models of a pruned vocabulary, whose logits of the ids that stayed are the same,
// and whose maps must fit.
#include "model/pruning/pruning.h"

#include <cstring>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include "base/files.h"
#include "base/json.h"
#include "model/files/checkpoint.h"
#include "model/files/write_weights.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/support/batches.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

TEST(Pruning, LayersAreChosenByCountStepOrList) {
  EXPECT_THAT(layers_to_keep("", 3, "x"), ElementsAre(0, 1, 2));
  EXPECT_THAT(layers_to_keep("first:2", 5, "x"), ElementsAre(0, 1));
  EXPECT_THAT(layers_to_keep("every:2", 5, "x"), ElementsAre(0, 2, 4));
  EXPECT_THAT(layers_to_keep("1,4", 5, "x"), ElementsAre(1, 4));
  for (const char* bad : {"5", "2,1", "1,1", "first:6", "first:0", "last:2", "every:", "a", "1,", "-1", "first:2x"}) {
    EXPECT_THAT(error_of([&] { layers_to_keep(bad, 5, "decoder_layers"); }), HasSubstr("decoder_layers")) << bad;
  }
}

// Neurons whose output weights are zero contribute nothing: cutting just them leaves the logits as they were.
TEST(Pruning, WhatContributesNothingIsCutFirst) {
  TransformerModel model(tiny_llama(4), 3);
  for (int64_t layer = 0; layer < 4; ++layer) {
    const std::string block = "decoder." + std::to_string(layer);
    at::Tensor down = model.parameters().at(block + ".feed_forward.down.weight");  // [12,20]
    for (const int64_t neuron : {1, 7, 8, 19}) down.select(1, neuron).zero_();
  }
  const auto pruned = prune(model, {.ff_width = 16});
  const TokenBatch tokens{at::arange(0, 24, at::kLong).view({2, 12}), {12, 12}};
  EXPECT_LT(difference(full_logits(*pruned, {}, tokens), full_logits(model, {}, tokens)), 1e-5);
}

TEST(Pruning, LayersWithoutRotationAndNormsOfQueriesStay) {
  TransformerConfig config = tiny_llama(5);
  config.unrotated_layers = {1, 4};
  config.query_key_norm = QueryKeyNorm::kWidth;
  config.norm_place = NormPlace::kAround;
  config.window = 3;
  config.window_layers = {2, 3};
  const auto pruned = prune(TransformerModel(config, 3), {.decoder_layers = "0,1,3,4"});
  EXPECT_THAT(pruned->config().unrotated_layers, ElementsAre(1, 3));
  EXPECT_THAT(pruned->config().window_layers, ElementsAre(2));
  EXPECT_EQ(pruned->parameters().at("decoder.3.self_attention.query_norm.weight").size(0),
            config.heads * config.head_width);
}

TEST(Pruning, ShapesThatCannotBeAreErrors) {
  const TransformerModel model(tiny_llama(4), 3);
  EXPECT_THAT(error_of([&] { prune(model, {.ff_width = 21}); }), HasSubstr("at most 20"));
  EXPECT_THAT(error_of([&] { prune(model, {.decoder_layers = "4"}); }), HasSubstr("0..3"));
  EXPECT_THAT(error_of([&] { prune(model, {.encoder_layers = "0"}); }), HasSubstr("has no encoder"));
}

TEST(Pruning, ASizeOfTheVocabularyNeedsTokensToCount) {
  EXPECT_THAT(option_problems(PruneOptions{.vocabulary_size = 100}, "small"), HasSubstr("small.vocabulary_from"));
}

// Frequent ids are the even ones: with T5's pad 0 and EOS 1 these stay.
const std::vector<int64_t> kKept = {0, 1, 2, 4, 6, 8};

std::unique_ptr<TransformerModel> pruned(const TransformerModel& model) {
  std::vector<int64_t> counts(static_cast<size_t>(model.config().vocabulary), 0);
  for (size_t id = 0; id < counts.size(); id += 2) counts[id] = static_cast<int64_t>(counts.size() - id);
  return prune(model, {.vocabulary_from = "text", .vocabulary_size = 6}, {.token_counts = counts, .unknown = 2});
}

std::unique_ptr<TransformerModel> whole(bool tied) {
  TransformerConfig config = tiny_t5();
  config.tied_head = tied;
  config.output_scale = 1.0;  // what config.json can hold
  return tiny_model(config, at::kFloat);
}

at::Tensor forward_logits(TransformerModel& model, const TokenBatch& source, const TokenBatch& target) {
  const at::NoGradGuard no_grad;
  return full_logits(model, source, target);
}

TEST(DraftVocabulary, LogitsOfIdsThatStayAreTheWholeModels) {
  TransformerConfig biased = tiny_forms()[0];
  biased.family = "t5";
  std::vector<std::unique_ptr<TransformerModel>> models;
  for (const bool tied : {true, false}) models.push_back(whole(tied));
  models.push_back(varied_model(biased, 7, at::kFloat));
  for (const auto& model : models) {
    const auto small = pruned(*model);
    EXPECT_THAT(small->config().draft_vocabulary.ids, testing::ContainerEq(kKept));
    EXPECT_EQ(small->config().vocabulary, model->config().vocabulary);
    EXPECT_EQ(small->parameters().at("embedding.weight").size(0), 6);
    const TokenBatch source{at::tensor({4, 8, 6, 1}, at::kLong).view({1, 4}), {4}};
    const TokenBatch target{at::tensor({0, 2, 8}, at::kLong).view({1, 3}), {3}};
    const at::Tensor expected = forward_logits(*model, source, target), found = forward_logits(*small, source, target);
    ASSERT_EQ(found.sizes(), expected.sizes());
    const at::Tensor ids = at::tensor(kKept, at::kLong);
    EXPECT_LT(difference(found.index_select(2, ids), expected.index_select(2, ids)), 1e-5);
    EXPECT_EQ(found.isinf().sum().item<int64_t>(), 3 * (model->config().vocabulary - 6));

    small->pack();
    auto state = small->begin(small->encode(source), 8);
    const at::Tensor stepped = small->step(step_input({{0, 2, 8}}), *state).logits;
    EXPECT_LT(difference(stepped.index_select(2, ids), expected.index_select(2, ids)), 3e-5);
  }
}

TEST(DraftVocabulary, IdsThatWentAreReadAsTheStandIn) {
  const auto small = pruned(*whole(true));
  const auto logits = [&](int64_t token) {
    const TokenBatch source{at::tensor({token, int64_t{1}}, at::kLong).view({1, 2}), {2}};
    const TokenBatch target{at::tensor({int64_t{0}, token}, at::kLong).view({1, 2}), {2}};
    return forward_logits(*small, source, target).index_select(2, at::tensor(kKept, at::kLong));
  };
  EXPECT_TRUE(logits(3).equal(logits(2)));
  EXPECT_TRUE(logits(22).equal(logits(2)));
  EXPECT_FALSE(logits(4).equal(logits(2)));
}

// Without an unknown token: of the ordinary ids the one nearest to the mean of those that go.
TEST(DraftVocabulary, TheStandInIsNearestToTheMeanOfWhatGoes) {
  const auto model = whole(true);
  at::Tensor embedding = model->parameters().at("embedding.weight");
  std::vector<int64_t> counts(23, 0);
  for (const size_t id : {4, 5, 6}) counts[id] = 10;
  counts[9] = 2;
  counts[11] = 1;
  const at::Tensor mean = (embedding[9] * 2 + embedding[11]) / 3;
  embedding[5].copy_(mean + 0.01);
  embedding[0].copy_(mean);  // special: it has a meaning of its own
  const auto small = prune(*model, {.vocabulary_from = "text", .vocabulary_size = 5}, {.token_counts = counts});
  EXPECT_THAT(small->config().draft_vocabulary.ids, ElementsAre(0, 1, 4, 5, 6));
  EXPECT_EQ(small->config().draft_vocabulary.stand_in, 5);
}

class DraftVocabularyFiles : public testing::Test {
 protected:
  void SetUp() override {
    small_ = pruned(*whole(false));
    save_model(directory_, *small_);
  }

  // Writes other maps; absent ones are left out.
  void write_maps(const std::optional<at::Tensor>& d2t, const std::optional<at::Tensor>& t2d) const {
    std::vector<TensorToStore> tensors;
    if (d2t) tensors.push_back({"d2t", *d2t, d2t->scalar_type()});
    if (t2d) tensors.push_back({"t2d", *t2d, t2d->scalar_type()});
    write_safetensors(maps_, tensors);
  }

  std::string load_error() const {
    return error_of([&] { load_model(directory_); });
  }

  TemporaryDirectory folder_;
  fs::path directory_ = folder_ / "small", maps_ = directory_ / "draftsmith" / "vocabulary.safetensors";
  std::unique_ptr<TransformerModel> small_;
  at::Tensor d2t_ = at::tensor({0, 0, 0, 1, 2, 3}, at::kLong);
  at::Tensor t2d_ = at::zeros({23}, at::kBool).index_fill_(0, at::tensor(kKept, at::kLong), true);
};

TEST_F(DraftVocabularyFiles, SavedAndLoadedItIsTheSameModel) {
  const auto config = load_json(directory_ / "config.json");
  EXPECT_EQ(config.at("vocab_size"), 23);
  EXPECT_EQ(config.at("draft_vocab_size"), 6);
  EXPECT_EQ(config.at("draft_unknown_token_id"), 2);
  const SafetensorsFile maps(maps_);
  EXPECT_EQ(std::memcmp(maps.bytes("d2t").data(), d2t_.const_data_ptr(), 6 * sizeof(int64_t)), 0);
  EXPECT_EQ(std::memcmp(maps.bytes("t2d").data(), t2d_.const_data_ptr(), 23), 0);
  for (const bool pack : {false, true}) {
    const auto loaded = load_model(directory_, {.pack = pack});
    EXPECT_EQ(loaded->config().draft_vocabulary.ids, small_->config().draft_vocabulary.ids);
    EXPECT_EQ(loaded->info().vocabulary, 23);
    const TokenBatch source = random_batch({5}, 23, 3), target = random_batch({4}, 23, 4);
    const at::Tensor found = forward_logits(*loaded, source, target).index_select(2, at::tensor(kKept, at::kLong));
    const at::Tensor expected = forward_logits(*small_, source, target).index_select(2, at::tensor(kKept, at::kLong));
    EXPECT_LT(difference(found, expected), 1e-5);
  }
}

TEST_F(DraftVocabularyFiles, MapsThatDoNotFitAreErrors) {
  write_maps(d2t_.narrow(0, 0, 5).clone(), t2d_);
  EXPECT_THAT(load_error(), AllOf(HasSubstr("vocabulary.safetensors: tensor 'd2t'"), HasSubstr("I64 [6]")));
  write_maps(d2t_, t2d_.narrow(0, 0, 22).clone());
  EXPECT_THAT(load_error(), AllOf(HasSubstr("t2d"), HasSubstr("BOOL [23]")));
  write_maps(d2t_.to(at::kFloat), t2d_);
  EXPECT_THAT(load_error(), AllOf(HasSubstr("d2t"), HasSubstr("F32 [6]")));
  write_maps(d2t_, std::nullopt);
  EXPECT_THAT(load_error(), AllOf(HasSubstr("t2d"), HasSubstr("missing from the maps")));
  write_safetensors(maps_, {{"d2t", d2t_, at::kLong}, {"t2d", t2d_, at::kBool}, {"other", d2t_, at::kLong}});
  EXPECT_THAT(load_error(), AllOf(HasSubstr("other"), HasSubstr("is not a map")));
}

TEST_F(DraftVocabularyFiles, IdsOutOfRangeOrOrderAndMapsThatDisagreeAreErrors) {
  const auto with = [&](const at::Tensor& map, int64_t index, int64_t value) {
    const at::Tensor before = map[index].clone();
    map[index].fill_(value);
    write_maps(d2t_, t2d_);
    map[index].copy_(before);
    return load_error();
  };
  EXPECT_THAT(with(d2t_, 5, 18), AllOf(HasSubstr("row 5"), HasSubstr("are below 23")));
  EXPECT_THAT(with(d2t_, 0, -1), HasSubstr("row 0"));
  EXPECT_THAT(with(d2t_, 3, -1), HasSubstr("row 3"));  // id 2 a second time
  EXPECT_THAT(with(d2t_, 4, std::numeric_limits<int64_t>::min()), HasSubstr("row 4"));
  EXPECT_THAT(with(d2t_, 4, std::numeric_limits<int64_t>::max()), HasSubstr("row 4"));
  EXPECT_THAT(with(t2d_, 5, 1), HasSubstr("disagrees with d2t on id 5"));
  EXPECT_THAT(with(t2d_, 8, 0), HasSubstr("disagrees with d2t on id 8"));
}

TEST_F(DraftVocabularyFiles, ConfigurationAndMapsGoTogether) {
  patch_config(directory_, {{"draft_vocab_size", nullptr}});
  EXPECT_THAT(load_error(), HasSubstr("that config.json does not mention"));
  patch_config(directory_, {{"draft_vocab_size", 24}});
  EXPECT_THAT(load_error(), HasSubstr("draft_vocab_size"));
  patch_config(directory_, {{"draft_vocab_size", 6}});
  patch_config(directory_, {{"draft_unknown_token_id", 3}});
  EXPECT_THAT(load_error(), AllOf(HasSubstr("draft_unknown_token_id"), HasSubstr("without a row")));
  patch_config(directory_, {{"draft_unknown_token_id", 2}});
  EXPECT_EQ(load_error(), "no error");
  fs::remove(maps_);
  EXPECT_THAT(load_error(), HasSubstr("vocabulary.safetensors"));
}

}  // namespace
}  // namespace draftsmith::model
