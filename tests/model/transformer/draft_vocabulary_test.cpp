// Models of a pruned vocabulary: same logits for the ids that stayed, none for the others, and maps that must fit.
#include "model/transformer/draft_vocabulary.h"

#include <cstring>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "model/files/checkpoint.h"
#include "model/pruning/pruning.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/support/batches.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

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
  return model.head(model.forward({.source = source, .target = target, .hidden_layers = {}}).hidden);  // [B,T,V]
}

TEST(DraftVocabulary, KeepsTheMostFrequentAndEverySpecialId) {
  EXPECT_THAT(most_frequent_ids({5, 0, 9, 9, 1, 7}, {1}, 4), ElementsAre(1, 2, 3, 5));
  EXPECT_THAT(most_frequent_ids({0, 0, 0, 0}, {3}, 2), ElementsAre(0, 3));
  EXPECT_THROW(most_frequent_ids({0, 0}, {0, 1}, 1), std::logic_error);
}

TEST(DraftVocabulary, LogitsOfIdsThatStayAreTheWholeModels) {
  for (const bool tied : {true, false}) {
    const auto model = whole(tied);
    const auto small = pruned(*model);
    EXPECT_THAT(small->config().draft_vocabulary.ids, testing::ContainerEq(kKept));
    EXPECT_EQ(small->config().vocabulary, model->config().vocabulary);
    EXPECT_EQ(small->parameters().at("embedding.weight").size(0), 6);
    const TokenBatch source{at::tensor({4, 8, 6, 1}, at::kLong).view({1, 4}), {4}};
    const TokenBatch target{at::tensor({0, 2, 8}, at::kLong).view({1, 3}), {3}};
    const at::Tensor expected = forward_logits(*model, source, target);
    const at::Tensor found = forward_logits(*small, source, target);
    ASSERT_EQ(found.sizes(), expected.sizes());
    const at::Tensor ids = at::tensor(kKept, at::kLong);
    EXPECT_LT(difference(found.index_select(2, ids), expected.index_select(2, ids)), 1e-5);
    EXPECT_EQ(found.isinf().sum().item<int64_t>(), 3 * (model->config().vocabulary - 6));

    small->pack();
    auto state = small->begin(small->encode(source), 8);
    const at::Tensor stepped = small->step(step_input({{0, 2, 8}}), *state).logits;
    EXPECT_LT(difference(stepped.index_select(2, ids), expected.index_select(2, ids)), 1e-5);
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

TEST(DraftVocabulary, SizesThatCannotBeAreErrors) {
  const auto model = whole(true);
  const PruneEvidence evidence{.token_counts = std::vector<int64_t>(23, 1), .special_ids = {0, 1, 2}};
  EXPECT_THAT(error_of([&] { prune(*model, {.vocabulary_from = "text", .vocabulary_size = 24}, evidence); }),
              AllOf(HasSubstr("vocabulary_size"), HasSubstr("3 to 23")));
  EXPECT_THAT(error_of([&] { prune(*model, {.vocabulary_from = "text", .vocabulary_size = 2}, evidence); }),
              HasSubstr("special tokens alone are more"));
  EXPECT_THAT(error_of([&] { prune(*pruned(*model), {.vocabulary_from = "text"}, evidence); }),
              HasSubstr("has already been pruned"));
}

// Pruning of other parts keeps a pruned vocabulary.
TEST(DraftVocabulary, StaysWhenLayersArePruned) {
  const auto again = prune(*pruned(*whole(true)), {.decoder_layers = "first:1"});
  EXPECT_THAT(again->config().draft_vocabulary.ids, testing::ContainerEq(kKept));
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

  void set_config(const std::string& key, const nlohmann::json& value) const {
    nlohmann::json config = load_json(directory_ / "config.json");
    if (value.is_null()) {
      config.erase(key);
    } else {
      config[key] = value;
    }
    write_json(directory_ / "config.json", config);
  }

  std::string load_error() const {
    return error_of([&] { load_model(directory_); });
  }

  TemporaryDirectory folder_;
  fs::path directory_ = folder_ / "small";
  fs::path maps_ = directory_ / "draftsmith" / "vocabulary.safetensors";
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
    const TokenBatch source = random_batch({5}, 23, 3);
    const TokenBatch target = random_batch({4}, 23, 4);
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

TEST_F(DraftVocabularyFiles, IdsOutOfRangeOrOrderAreErrors) {
  const auto with = [&](int64_t row, int64_t offset) {
    const at::Tensor changed = d2t_.clone();
    changed[row] = offset;
    write_maps(changed, t2d_);
    return load_error();
  };
  EXPECT_THAT(with(5, 18), AllOf(HasSubstr("row 5"), HasSubstr("are below 23")));
  EXPECT_THAT(with(0, -1), HasSubstr("row 0"));
  EXPECT_THAT(with(3, 0 - 1), HasSubstr("row 3"));  // id 2 a second time
  EXPECT_THAT(with(4, std::numeric_limits<int64_t>::min()), HasSubstr("row 4"));
  EXPECT_THAT(with(4, std::numeric_limits<int64_t>::max()), HasSubstr("row 4"));
}

TEST_F(DraftVocabularyFiles, MapsThatDisagreeAreErrors) {
  const auto with = [&](int64_t id, bool has_row) {
    const at::Tensor changed = t2d_.clone();
    changed[id] = has_row;
    write_maps(d2t_, changed);
    return load_error();
  };
  EXPECT_THAT(with(5, true), HasSubstr("disagrees with d2t on id 5"));
  EXPECT_THAT(with(8, false), HasSubstr("disagrees with d2t on id 8"));
}

TEST_F(DraftVocabularyFiles, ConfigurationAndMapsGoTogether) {
  set_config("draft_vocab_size", nullptr);
  EXPECT_THAT(load_error(), HasSubstr("that config.json does not mention"));
  set_config("draft_vocab_size", 24);
  EXPECT_THAT(load_error(), HasSubstr("draft_vocab_size"));
  set_config("draft_vocab_size", 6);
  set_config("draft_unknown_token_id", 3);
  EXPECT_THAT(load_error(), AllOf(HasSubstr("draft_unknown_token_id"), HasSubstr("without a row")));
  set_config("draft_unknown_token_id", 2);
  EXPECT_EQ(load_error(), "no error");
  fs::remove(maps_);
  EXPECT_THAT(load_error(), HasSubstr("vocabulary.safetensors"));
}

TEST_F(DraftVocabularyFiles, WeightsOfAnotherSizeAreAnError) {
  set_config("draft_vocab_size", 5);
  write_maps(d2t_.narrow(0, 0, 5).clone(), t2d_.clone().index_fill_(0, at::tensor({8}, at::kLong), false));
  EXPECT_THAT(load_error(), AllOf(HasSubstr("shared.weight"), HasSubstr("[5, 20]")));
}

}  // namespace
}  // namespace draftsmith::model
