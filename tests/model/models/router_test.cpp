// The router's network: its formula, gradients, fast path, and directories.
#include "model/models/router.h"

#include <cmath>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include "base/files.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/files/write_weights.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::model {
namespace {

const std::string kHash(64, 'a');

RouterConfig config_for(const TransformerModel& drafter, int64_t top_k = 3, int64_t hidden = 7) {
  RouterConfig config{.top_k = top_k, .hidden = hidden, .embedding_scale = 0.7, .drafter = "small"};
  config.drafter_hash = kHash;
  config.width = drafter.config().width;
  config.vocabulary = drafter.config().vocabulary;
  return config;
}

// A config that a directory can hold.
TransformerConfig small_config() {
  TransformerConfig config = tiny_t5();
  config.output_scale = 1;
  return config;
}

RouterFeatures some_features(int64_t vocabulary) {
  return {at::tensor({0.3, 1.9, 0.0, 2.5}, at::kFloat),
          at::tensor({0.9, 0.05, 0.02, 0.3, 0.25, 0.2, 1.0, 0.0, 0.0, 0.2, 0.1, 0.05}, at::kFloat).view({4, 3}),
          at::tensor({int64_t{3}, int64_t{1}, int64_t{8}, vocabulary - 1, int64_t{0}, int64_t{2}, int64_t{5},
                      int64_t{-1}, int64_t{-1}, int64_t{4}, int64_t{4}, int64_t{7}},
                     at::kLong)
              .view({4, 3})};
}

// The formula of the header in plain loops.
double formula(const Router& router, const TransformerModel& drafter, const RouterFeatures& features, int64_t n) {
  const RouterConfig& c = router.config();
  const auto at = [&](const char* name, int64_t i, int64_t j) {
    return router.parameters().at(name)[i][j].item<double>();
  };
  const auto of = [&](const char* name, int64_t i) { return router.parameters().at(name)[i].item<double>(); };
  const at::Tensor table = drafter.parameters().at("embedding.weight");
  double logit = of("output.bias", 0);
  for (int64_t h = 0; h < c.hidden; ++h) {
    double sum = of("hidden.bias", h) + at("scalars.weight", h, 0) * features.entropy[n].item<double>() /
                                            std::log(static_cast<double>(c.vocabulary));
    for (int64_t i = 0; i < c.top_k; ++i) {
      sum += at("scalars.weight", h, 1 + i) * features.probabilities[n][i].item<double>();
      const auto id = features.ids[n][i].item<int64_t>();
      for (int64_t d = 0; id >= 0 && d < c.width; ++d) {
        sum += at("embeddings.weight", h, i * c.width + d) * c.embedding_scale * table[id][d].item<double>();
      }
    }
    logit += of("output.weight", h) * std::max(sum, 0.0);
  }
  return 1 / (1 + std::exp(-logit));
}

class RouterTest : public ::testing::Test {
 protected:
  const TemporaryDirectory root_;
  std::unique_ptr<TransformerModel> drafter_ = tiny_model(small_config(), at::kFloat);
};

TEST_F(RouterTest, EveryPathComputesTheFormula) {
  const Router router(config_for(*drafter_), 5);
  const RouterFeatures features = some_features(drafter_->config().vocabulary);
  const RouterPredictor fast(router, *drafter_);
  const RouterPredictor plain(router, *drafter_, 100);  // no room for the table
  const at::Tensor together = fast.disagreement(features);
  const at::Tensor trained =
      at::sigmoid(router.logits(features, drafter_->token_embeddings(features.ids.clamp_min(0))));
  for (int64_t n = 0; n < 4; ++n) {
    const double expected = formula(router, *drafter_, features, n);
    const std::span probabilities(features.probabilities[n].const_data_ptr<float>(), 3);
    const std::span ids(features.ids[n].const_data_ptr<int64_t>(), 3);
    const double entropy = features.entropy[n].item<double>();
    EXPECT_NEAR(fast.disagreement(entropy, probabilities, ids), expected, 1e-6);
    EXPECT_NEAR(plain.disagreement(entropy, probabilities, ids), expected, 1e-6);
    EXPECT_NEAR(together[n].item<double>(), expected, 1e-6);
    EXPECT_NEAR(trained[n].item<double>(), expected, 1e-6);
  }
}

TEST_F(RouterTest, IdsThatTheDrafterLacksCountNothing) {
  const Router router(config_for(*drafter_, 1), 5);
  const std::vector<float> probability{0.25F};
  for (const int64_t bytes : {RouterPredictor::kTableBytes, int64_t{10}}) {
    const RouterPredictor predictor(router, *drafter_, bytes);
    const double none = predictor.disagreement(1, probability, std::vector<int64_t>{-1});
    const std::vector<int64_t> unknown{drafter_->config().vocabulary};
    EXPECT_EQ(predictor.disagreement(1, probability, unknown), none);
    EXPECT_NE(predictor.disagreement(1, probability, std::vector<int64_t>{3}), none);
  }
}

TEST_F(RouterTest, GradientsEqualFiniteDifferences) {
  const Router router(config_for(*drafter_), 9);
  const RouterFeatures features = some_features(drafter_->config().vocabulary);
  const at::Tensor embeddings = drafter_->token_embeddings(features.ids.clamp_min(0)).to(at::kDouble);
  const at::Tensor targets = at::tensor({0.1, 0.8, 0.0, 0.55}, at::kDouble);
  const auto loss = [&] {
    return at::binary_cross_entropy_with_logits(router.logits(features, embeddings), targets, {}, {},
                                                at::Reduction::Sum);
  };
  for (const auto& entry : router.parameters()) entry.second.requires_grad_(true);
  loss().backward();
  const at::NoGradGuard no_gradients;
  for (const auto& [name, value] : router.parameters()) {
    const at::Tensor flat = value.view(-1), gradient = value.grad().view(-1);
    for (int64_t i = 0; i < flat.numel(); i += std::max<int64_t>(1, flat.numel() / 9)) {
      constexpr double kStep = 0x1p-11;
      const auto before = flat[i].item<double>();
      flat[i] = before + kStep;
      const double above = loss().item<double>(), up = flat[i].item<double>();
      flat[i] = before - kStep;
      const double below = loss().item<double>(), down = flat[i].item<double>();
      flat[i] = before;
      EXPECT_NEAR(gradient[i].item<double>(), (above - below) / (up - down), 2e-5) << name << " " << i;
    }
  }
}

TEST_F(RouterTest, ReadsEmbeddingsOfModelsLoadedForDecodingAlone) {
  save_model(root_ / "small", *drafter_);
  const auto packed = load_model(root_ / "small");
  EXPECT_THROW(packed->parameters(), std::logic_error);
  const at::Tensor ids = at::tensor({3, 0, 22, 7}, at::kLong).view({2, 2});
  const at::Tensor rows = drafter_->parameters().at("embedding.weight").index_select(0, ids.view(-1));
  EXPECT_TRUE(at::equal(packed->token_embeddings(ids), rows.view({2, 2, -1})));
}

TEST_F(RouterTest, DirectoryHoldsEverything) {
  RouterConfig config = config_for(*drafter_);
  config.threshold = 0.65;
  config.max_draft = 12;
  config.drafter = "a\x1b[31mb";
  const Router router(config, 3);
  EXPECT_TRUE(
      at::equal(router.parameters().at("embeddings.weight"), Router(config, 3).parameters().at("embeddings.weight")));
  EXPECT_FALSE(
      at::equal(router.parameters().at("embeddings.weight"), Router(config, 4).parameters().at("embeddings.weight")));
  save_router(root_ / "router", router);
  EXPECT_TRUE(is_router(root_ / "router"));
  const Router loaded = load_router(root_ / "router");
  EXPECT_EQ(loaded.config().threshold, 0.65);
  EXPECT_EQ(loaded.config().max_draft, 12);
  EXPECT_EQ(loaded.config().embedding_scale, 0.7);
  for (const auto& [name, value] : router.parameters()) EXPECT_TRUE(at::equal(loaded.parameters().at(name), value));
  EXPECT_THAT(error_of([&] { save_router(root_ / "router", router); }), HasSubstr("exists already"));
  EXPECT_THAT(describe_router(loaded), HasSubstr("threshold 0.65"));
  EXPECT_THAT(describe_router(loaded), HasSubstr("a\\x1b[31mb")) << "text of the file is printed escaped";
}

TEST_F(RouterTest, DamagedDirectoriesAreRefusedByName) {
  struct RouterDamage {
    std::string key;
    nlohmann::json value;
    std::string said;
  };
  for (const RouterDamage& damage :
       {RouterDamage{"model_type", "t5", "not the config.json of a router"},
        RouterDamage{"format_version", 7, "format version"}, RouterDamage{"top_k", 2, "another shape"},
        RouterDamage{"top_k", 0, "top_k"}, RouterDamage{"threshold", -1, "threshold"},
        RouterDamage{"max_draft", 0, "max_draft"}, RouterDamage{"embedding_scale", 0, "embedding_scale"},
        RouterDamage{"drafter_sha256", "\x1b]0;", "\\x1b]0;"}}) {
    const TemporaryDirectory root;
    save_router(root / "router", Router(config_for(*drafter_), 3));
    patch_config(root / "router", {{damage.key, damage.value}});
    EXPECT_THAT(error_of([&] { load_router(root / "router"); }), HasSubstr(damage.said)) << damage.key;
  }
}

TEST_F(RouterTest, MissingUnknownAndBrokenTensorsAreRefused) {
  EXPECT_THAT(error_of([&] { load_router(root_ / "none"); }), HasSubstr("not a router directory"));
  const RouterConfig config = config_for(*drafter_);
  auto parameters = Router(config, 3).parameters();
  parameters.erase("hidden.bias");
  parameters["more.weight"] = at::zeros({1});
  EXPECT_THAT(error_of([&] { Router(config, parameters, "here"); }),
              AllOf(HasSubstr("hidden.bias"), HasSubstr("more.weight")));
  const Router third(config, 3);
  save_router(root_ / "router", third);
  std::vector<TensorToStore> tensors;
  for (const auto& [name, value] : third.parameters()) tensors.push_back({name, value, at::kFloat});
  tensors.push_back({"more.ids", at::zeros({3}, at::kLong), at::kLong});
  write_safetensors(root_ / "router/model.safetensors", std::move(tensors));
  EXPECT_THAT(error_of([&] { load_router(root_ / "router"); }), HasSubstr("more.ids"));
  auto broken = Router(config, 3).parameters();
  broken["output.bias"] = at::full({1}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(error_of([&] { Router(config, broken, "here"); }), HasSubstr("NaN"));
}

TEST_F(RouterTest, AnotherDraftersRouterIsRefusedNamingBoth) {
  save_model(root_ / "small", *drafter_);
  save_model(root_ / "other", *tiny_model(small_config(), at::kFloat, 8));
  RouterConfig config = config_for(*drafter_);
  config.drafter = "work/small/model";
  config.drafter_hash = model_hash(root_ / "small");
  const Router router(config, 3);
  const auto message = [&](const char* name) {
    return error_of([&] { require_router_fits(router, "router", root_ / name); });
  };
  EXPECT_EQ(message("small"), "no error");
  EXPECT_THAT(message("other"), AllOf(HasSubstr("another drafter"), HasSubstr("work/small/model"),
                                      HasSubstr((root_ / "other").string())));
}

}  // namespace
}  // namespace draftsmith::model
