// From decoding to a trained router, at toy size.
#include <cmath>
#include <csignal>

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/signals.h"
#include "base/toml.h"
#include "data/corpus/corpus.h"
#include "data/router/router_data.h"
#include "infer/session.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/companion.h"
#include "model/models/feature_drafter.h"
#include "model/models/router.h"
#include "recipes/inspection.h"
#include "recipes/stage.h"
#include "tests/recipes/stages/stage_fixtures.h"
#include "tests/support/models.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kSources = 40;

// A target and a drafter that is the target with its embeddings disturbed; random weights, ids for text.
class RouterStages : public StageTest {
 protected:
  void SetUp() override {
    const model::TransformerConfig config = model::t5_config();
    const model::TransformerModel target(config, 1);
    model::save_model(folder_ / "target", target);
    for (const auto& [name, value] : target.parameters()) {
      if (name.starts_with("embedding")) value.add_(at::sin(at::arange(value.numel(), at::kFloat)).view_as(value), 0.5);
    }
    model::save_model(folder_ / "small", target);
    model::save_model(folder_ / "other", model::TransformerModel(config, 9));
    data::CorpusWriter writer(folder_ / "corpus.h5", {.tokenizer_hash = "abc", .vocabulary = 40});
    for (int32_t i = 0; i < kSources; ++i) {
      writer.add(std::vector<int32_t>{2 + i % 38, 39 - i % 37, 2 + (7 * i) % 38, 1}, std::vector<int32_t>{4, 1});
    }
    writer.finish();
  }

  toml::table collection(const std::string& drafter = "small") const {
    return toml::table{{"model", text("target")},
                       {"drafter", text(drafter)},
                       {"corpus", text("corpus.h5")},
                       {"max_new_tokens", 12},
                       {"window", 6},
                       {"top_k", 5},
                       {"batch_size", 4}};
  }

  toml::table training(const std::string& data, const std::string& drafter = "small") const {
    return toml::table{
        {"data", text(data)}, {"drafter", text(drafter)}, {"hidden", 8}, {"epochs", 3}, {"max_draft", 6}};
  }

  // Tokens sampled at temperature 1 are rejected with the probability that is the soft target: 5 standard errors.
  static void expect_rejections_as_told(const data::RouterData& data) {
    double expected = 0, variance = 0, rejected = 0;
    for (size_t n = 0; n < data.rows().entropy.size(); ++n) {
      const auto p = static_cast<double>(data.rows().disagreement[n]);
      expected += p;
      variance += p * (1 - p);
      rejected += data.rows().rejected[n];
    }
    EXPECT_NEAR(rejected, expected, 5 * std::sqrt(variance));
  }
};

TEST_F(RouterStages, CollectAndTrain) {
  run("router-data", collection(), "collected");
  const data::RouterData data(folder_ / "collected/router_data.h5");
  EXPECT_EQ(data.info().examples, kSources);
  EXPECT_EQ(data.info().drafter_hash, model::model_hash(folder_ / "small"));
  EXPECT_EQ(data.rows().examples.back(), kSources - 1);
  EXPECT_GT(data.rows().size(), 3 * kSources);
  EXPECT_THAT(inspect(folder_ / "collected/router_data.h5"), HasSubstr("top 5 tokens"));

  run("router", training("collected/router_data.h5"), "trained");
  const model::Router router = model::load_router(folder_ / "trained/router");
  EXPECT_EQ(router.config().drafter_hash, data.info().drafter_hash);
  EXPECT_THAT(inspect(folder_ / "trained/router"), AllOf(HasSubstr("max_draft 6"), HasSubstr("cross entropy")));
  EXPECT_TRUE(verify(folder_ / "trained/router").empty());
  const std::string weights = read_file(folder_ / "trained/router/model.safetensors");
  run("router", training("collected/router_data.h5"), "trained");  // begins again, to the same end
  EXPECT_EQ(read_file(folder_ / "trained/router/model.safetensors"), weights);
}

TEST_F(RouterStages, SourcesAreNumberedBeyondThoseThatAreDecodedTogether) {
  data::CorpusWriter writer(folder_ / "many.h5", {.tokenizer_hash = "abc", .vocabulary = 40});
  for (int i = 0; i < 258; ++i) writer.add(std::vector<int32_t>{3, 1}, std::vector<int32_t>{4, 1});
  writer.finish();
  toml::table table = collection();
  table.insert_or_assign("corpus", text("many.h5"));
  table.insert_or_assign("max_new_tokens", 2);
  run("router-data", table, "many");
  EXPECT_EQ(data::RouterData(folder_ / "many/router_data.h5").rows().examples.back(), 257);
}

TEST_F(RouterStages, SampledPathsAreCollectedWithTheSameMeaning) {
  toml::table table = collection();
  table.insert("temperature", 1.0);
  run("router-data", table, "sampled");
  run("router-data", collection(), "greedy");
  const data::RouterData sampled(folder_ / "sampled/router_data.h5");
  const data::RouterData greedy(folder_ / "greedy/router_data.h5");
  EXPECT_NE(sampled.rows().ids, greedy.rows().ids);
  // The first position of a source is the same text in both.
  EXPECT_EQ(sampled.rows().disagreement.front(), greedy.rows().disagreement.front());
  expect_rejections_as_told(sampled);
}

// Its embeddings are the target's. In block mode one run has the logits of several positions.
TEST_F(RouterStages, AFeaturesDrafterHasARouter) {
  const auto target = model::load_model(folder_ / "target", {.pack = false});
  for (const bool block : {false, true}) {
    SCOPED_TRACE(block);
    const std::string name = block ? "block" : "features";
    model::save_with_companion(folder_ / name, *model::make_feature_drafter(*target, {.block = block}),
                               folder_ / "target");
    toml::table table = collection(name);
    table.insert("temperature", 1.0);
    run("router-data", table, "data-" + name);
    expect_rejections_as_told(data::RouterData(folder_ / ("data-" + name) / "router_data.h5"));
    run("router", training("data-" + name + "/router_data.h5", name), "trained-" + name);
    infer::Session session({.target = (folder_ / "target").string(), .drafter = (folder_ / name).string()});
    const std::vector<std::vector<int64_t>> sources{{5, 9, 1}, {30, 2, 17, 1}};
    infer::DecodeOptions options{.method = "greedy", .max_new_tokens = 12};
    const auto greedy = session.generator(options).generate(sources);
    options.method = "assisted";
    options.window_rule = "router";
    options.router = folder_ / ("trained-" + name) / "router";
    std::vector<int64_t> drafted;
    for (const double threshold : {0.0, 0.999}) {
      options.threshold = threshold;
      drafted.push_back(0);
      const auto results = session.generator(options).generate(sources);
      for (size_t i = 0; i < sources.size(); ++i) {
        EXPECT_EQ(results[i].ids, greedy[i].ids);
        drafted.back() += results[i].stats.drafted;
      }
    }
    EXPECT_GT(drafted[0], drafted[1]) << "the router ends drafts";
  }
}

TEST_F(RouterStages, CollectOutputsInTheLanguageThatIsAskedFor) {
  const int32_t french = save_translator();
  model::save_model(folder_ / "sixty", model::TransformerModel(model::t5_config({.vocabulary = 60}), 2));
  toml::table table = collection();
  table.insert_or_assign("model", text("mbart"));
  table.insert_or_assign("drafter", text("sixty"));
  table.insert_or_assign("corpus", text("german.h5"));
  table.insert("target_language", "fr_XX");
  run("router-data", table, "french");
  const data::RouterData data(folder_ / "french/router_data.h5");
  EXPECT_EQ(data.rows().ids.front(), french);
  EXPECT_EQ(data.rows().entropy.front(), 0.0F);
  EXPECT_EQ(data.info().provenance.at("target_language"), "fr_XX");
  table.insert("source_language", "en_XX");
  EXPECT_THAT(stage_error(table, "router-data"), HasSubstr("en_XX first"));
}

TEST_F(RouterStages, FilesOfAnotherDrafterAndDraftersThatAreNoModelsAreRefused) {
  run("router-data", collection(), "collected");
  EXPECT_THAT(stage_error(training("collected/router_data.h5", "other"), "router"),
              AllOf(HasSubstr("another drafter"), HasSubstr("other"), HasSubstr("small")));
  EXPECT_THAT(stage_error(training("corpus.h5"), "router"), HasSubstr("not the data of a router"));
  toml::table exit = training("collected/router_data.h5");
  exit.insert_or_assign("drafter", "exit:1");
  EXPECT_THAT(stage_error(exit, "router"), AllOf(HasSubstr("a model of its own"), HasSubstr("exit:1")));
  toml::table lookup = collection();
  lookup.insert_or_assign("drafter", "lookup");
  EXPECT_THAT(stage_error(lookup, "router-data"), AllOf(HasSubstr("a model of its own"), HasSubstr("lookup")));
  EXPECT_FALSE(fs::exists(folder_ / "failing/router"));
}

TEST_F(RouterStages, AskedToStopCollectingLeavesNoFile) {
  const SignalWatch watch;
  raise(SIGTERM);
  EXPECT_THROW(run("router-data", collection(), "stopped"), Interrupted);
  EXPECT_TRUE(fs::is_empty(folder_ / "stopped"));
}

}  // namespace
}  // namespace draftsmith::recipes
