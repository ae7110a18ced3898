// From decoding to a trained router to an evaluation with it, at toy size.
#include <algorithm>
#include <cmath>
#include <csignal>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "base/signals.h"
#include "base/toml.h"
#include "data/corpus/corpus.h"
#include "data/router/router_data.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/models/router.h"
#include "model/models/tandem.h"
#include "recipes/inspection.h"
#include "recipes/stage.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr int32_t kSources = 40;

// A target and a drafter that is the target with its embeddings disturbed; random weights, ids for text.
class RouterStages : public testing::Test {
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

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void run(const std::string& kind, const toml::table& table, const std::string& directory) const {
    fs::create_directories(folder_ / directory);
    const Execution execution{.device = "cpu", .threads = 1, .quiet = true};
    stage_kinds().find(kind)->run(table,
                                  {.directory = folder_ / directory, .identity = "this job", .execution = execution});
  }

  toml::table collection(const std::string& drafter = "small") const {
    return toml::table{{"model", path("target")},
                       {"drafter", path(drafter)},
                       {"corpus", path("corpus.h5")},
                       {"max_new_tokens", 12},
                       {"window", 6},
                       {"top_k", 5},
                       {"batch_size", 4}};
  }

  toml::table training(const std::string& data, const std::string& drafter = "small") const {
    return toml::table{
        {"data", path(data)}, {"drafter", path(drafter)}, {"hidden", 8}, {"epochs", 3}, {"max_draft", 6}};
  }

  std::string stage_error(const std::string& kind, const toml::table& table) const {
    return error_of([&] { run(kind, table, "failing"); });
  }

  TemporaryDirectory folder_;
};

TEST_F(RouterStages, CollectTrainAndEvaluate) {
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
  EXPECT_THAT(inspect(folder_ / "trained/router"), AllOf(HasSubstr("max_draft 6"), HasSubstr("calibration error")));
  EXPECT_TRUE(verify(folder_ / "trained/router").empty());
  const std::string weights = read_file(folder_ / "trained/router/model.safetensors");
  run("router", training("collected/router_data.h5"), "trained");  // begins again, to the same end
  EXPECT_EQ(read_file(folder_ / "trained/router/model.safetensors"), weights);

  std::string lines;
  for (int line = 0; line < 4; ++line) lines += fmt::format("{} {} 1\n", 5 + line, 20 - line);
  write_file_atomic(folder_ / "source", lines);
  const std::string suite = fmt::format(
      "model = \"{0}\"\ndtype = \"fp64\"\nrepetitions = 1\nmax_new_tokens = 12\nresamples = 10\nforced_lines = 0\n"
      "[[drafter]]\nname = \"small\"\nmodel = \"{1}\"\n"
      "[[task]]\nname = \"ids\"\nsource = \"{2}\"\nreferences = [\"{2}\"]\nids = true\n"
      "[[run]]\nname = \"router\"\nmethod = \"speculative\"\ntemperature = [0]\ndrafter = [\"small\"]\n"
      "window_rule = \"router\"\nrouter = \"{3}\"\nthreshold = [0.4]\n"
      "[[run]]\nname = \"oracle\"\nmethod = \"speculative\"\ntemperature = [0]\ndrafter = [\"small\"]\n"
      "window_rule = \"oracle\"\nmax_draft = [6]\n",
      path("target"), path("small"), path("source"), path("trained/router"));
  run("evaluate", parse_toml(suite, "suite"), "evaluated");
  const auto results = load_json(folder_ / "evaluated/results.json");
  for (const auto& one : results.at("tasks").at(0).at("runs")) {
    if (one.contains("repeats")) continue;
    EXPECT_EQ(one.at("exactness").at("differing_lines"), 0) << one.at("name");
  }
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
  // Tokens sampled at temperature 1 are rejected with the probability that is the soft target: 5 standard errors.
  double expected = 0;
  double variance = 0;
  double rejected = 0;
  for (size_t n = 0; n < sampled.rows().entropy.size(); ++n) {
    const auto p = static_cast<double>(sampled.rows().disagreement[n]);
    expected += p;
    variance += p * (1 - p);
    rejected += sampled.rows().rejected[n];
  }
  EXPECT_NEAR(rejected, expected, 5 * std::sqrt(variance));
}

TEST_F(RouterStages, FilesOfAnotherDrafterAndDraftersThatAreNoModelsAreRefused) {
  run("router-data", collection(), "collected");
  EXPECT_THAT(stage_error("router", training("collected/router_data.h5", "other")),
              AllOf(HasSubstr("another drafter"), HasSubstr("other"), HasSubstr("small")));
  EXPECT_THAT(stage_error("router", training("corpus.h5")), HasSubstr("not the data of a router"));
  toml::table exit = training("collected/router_data.h5");
  exit.insert_or_assign("drafter", "exit:1");
  EXPECT_THAT(stage_error("router", exit), AllOf(HasSubstr("a model of its own"), HasSubstr("exit:1")));
  toml::table lookup = collection();
  lookup.insert_or_assign("drafter", "lookup");
  EXPECT_THAT(stage_error("router-data", lookup), AllOf(HasSubstr("a model of its own"), HasSubstr("lookup")));
  EXPECT_FALSE(fs::exists(folder_ / "failing/router"));
}

TEST_F(RouterStages, AskedToStopCollectingLeavesNoFile) {
  const SignalWatch watch;
  raise(SIGTERM);
  EXPECT_THROW(run("router-data", collection(), "stopped"), Interrupted);
  EXPECT_TRUE(fs::is_empty(folder_ / "stopped"));
}

// A Tandem secondary that is the target itself, read through unit projections, is routed like any drafter.
TEST_F(RouterStages, TandemSecondariesHaveRoutersToo) {
  const auto target = model::load_model(folder_ / "target", {.pack = false});
  const auto secondary = model::make_tandem_secondary(
      *target, *target, {.layer_map = {0, 1}, .projections = model::ProjectionStart::kIdentity});
  model::save_tandem(folder_ / "tandem", *secondary, {.primary_directory = folder_ / "target"});
  run("router-data", collection("tandem"), "collected");
  const data::RouterData data(folder_ / "collected/router_data.h5");
  EXPECT_EQ(*std::max_element(data.rows().rejected.begin(), data.rows().rejected.end()), 0);
  EXPECT_LT(*std::max_element(data.rows().disagreement.begin(), data.rows().disagreement.end()), 1e-4);
  run("router", training("collected/router_data.h5", "tandem"), "trained");
  EXPECT_EQ(model::load_router(folder_ / "trained/router").config().drafter_hash,
            model::model_hash(folder_ / "tandem"));
}

}  // namespace
}  // namespace draftsmith::recipes
