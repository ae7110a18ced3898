// From decoding to a trained router to an evaluation with it, at toy size.
#include <cmath>
#include <csignal>
#include <set>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/files.h"
#include "base/json.h"
#include "base/signals.h"
#include "base/toml.h"
#include "data/corpus/sharded_corpus.h"
#include "data/router/sharded_router_data.h"
#include "infer/sampling/draft_features.h"
#include "model/files/checkpoint.h"
#include "model/files/model_hash.h"
#include "model/kinds/router.h"
#include "model/kinds/tandem.h"
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
                       {"shard_examples", 16},
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
  const float source = std::log1p(4.0F) / 4;  // of four tokens each
  EXPECT_NEAR(data.rows().context[2], source, 1e-6F);
  EXPECT_GT(data.rows().size(), 3 * kSources);
  EXPECT_THAT(inspect(folder_ / "collected/router_data.h5"), HasSubstr("top 5 tokens"));

  run("router", training("collected/router_data.h5"), "trained");
  const model::Router router = model::load_router(folder_ / "trained/router");
  EXPECT_EQ(router.config().drafter_hash, data.info().drafter_hash);
  EXPECT_THAT(inspect(folder_ / "trained/router"),
              AllOf(HasSubstr("max_draft 6"), HasSubstr("calibration error"), HasSubstr("bootstrap intervals")));
  EXPECT_TRUE(verify(folder_ / "trained/router").empty());
  EXPECT_TRUE(fs::exists(folder_ / "trained/router_report.svg"));
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

// The positions of the sources [first,last), told from decoded ones by their targets.
data::RouterRows marked_rows(const data::RouterRows& whole, int32_t first, int32_t last) {
  data::RouterRows rows;
  for (size_t n = 0; n < whole.entropy.size(); ++n) {
    if (whole.examples[n] < first || whole.examples[n] >= last) continue;
    rows.entropy.push_back(whole.entropy[n]);
    rows.disagreement.push_back(0.125F);
    rows.rejected.push_back(whole.rejected[n]);
    rows.examples.push_back(whole.examples[n]);
    const auto context = whole.context.begin() + static_cast<std::ptrdiff_t>(n * model::kRouterContext);
    rows.context.insert(rows.context.end(), context, context + model::kRouterContext);
    for (size_t i = 5 * n; i < 5 * (n + 1); ++i) {
      rows.probabilities.push_back(whole.probabilities[i]);
      rows.ids.push_back(whole.ids[i]);
    }
  }
  return rows;
}

TEST_F(RouterStages, CollectingGoesOnWithTheMissingShardsAndGivesTheSame) {
  run("router-data", collection(), "whole");
  const data::RouterData whole(folder_ / "whole/router_data.h5");
  // Two shards of another size than the one that goes on, as a killed run leaves them.
  const data::RouterRows first = marked_rows(whole.rows(), 0, 10);
  fs::create_directories(folder_ / "killed");
  {
    data::ShardedRouterData shards(folder_ / "killed/router_data.h5", whole.info());
    shards.add_shard({0, 10}, first);
    shards.add_shard({20, 30}, marked_rows(whole.rows(), 20, 30));
  }
  run("router-data", collection(), "killed");
  const data::RouterData killed(folder_ / "killed/router_data.h5");
  ASSERT_EQ(killed.rows().size(), whole.rows().size());
  EXPECT_EQ(killed.rows().ids, whole.rows().ids);
  EXPECT_EQ(killed.rows().examples, whole.rows().examples);
  for (size_t n = 0; n < killed.rows().examples.size(); ++n) {
    const int32_t source = killed.rows().examples[n];
    const bool marked = source < 10 || (source >= 20 && source < 30);
    EXPECT_EQ(killed.rows().disagreement[n], marked ? 0.125F : whole.rows().disagreement[n]) << source;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "killed"), {}), 1) << "no shard is left";
  // Killed after joining: nothing is decoded again, whatever its name says.
  const auto before = fs::last_write_time(folder_ / "killed/router_data.h5");
  run("router-data", collection(), "killed");
  EXPECT_EQ(fs::last_write_time(folder_ / "killed/router_data.h5"), before);
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

TEST_F(RouterStages, TextsWithoutSourcesBeginWithTheirFirstTokens) {
  model::TransformerConfig config = model::gpt2_config({.decoder_layers = 1});
  config.initializer_range = 0.5;
  config.bos = 1;
  model::save_model(folder_ / "gpt", model::TransformerModel(config, 1));
  model::save_model(folder_ / "gpt-small", model::TransformerModel(config, 2));
  data::CorpusWriter writer(folder_ / "texts.h5", {.tokenizer_hash = "abc", .vocabulary = 40});
  for (int32_t i = 0; i < 6; ++i) writer.add({}, std::vector<int32_t>{2 + i, 30 - i, 9, 1});
  writer.add({}, std::vector<int32_t>{1});
  writer.finish();
  toml::table table = collection("gpt-small");
  table.insert_or_assign("model", path("gpt"));
  table.insert_or_assign("corpus", path("texts.h5"));
  table.insert("prompt_tokens", 2);
  run("router-data", table, "texts");
  const data::RouterData data(folder_ / "texts/router_data.h5");
  EXPECT_EQ(data.rows().examples.back(), 6);
  std::set<float> firsts;  // each text begins in another way
  for (size_t n = 0; n < data.rows().entropy.size(); ++n) {
    if (n == 0 || data.rows().examples[n] != data.rows().examples[n - 1]) firsts.insert(data.rows().entropy[n]);
  }
  EXPECT_EQ(firsts.size(), 7U);
}

TEST_F(RouterStages, FilesOfAnotherDrafterAreRefused) {
  run("router-data", collection(), "collected");
  EXPECT_THAT(stage_error("router", training("collected/router_data.h5", "other")),
              AllOf(HasSubstr("another drafter"), HasSubstr("other"), HasSubstr("small")));
  toml::table more = training("collected/router_data.h5");
  more.insert("top_k", 6);
  EXPECT_THAT(stage_error("router", more), AllOf(HasSubstr("top_k = 6"), HasSubstr("5 tokens")));
  EXPECT_THAT(stage_error("router", training("corpus.h5")), HasSubstr("not the data of a router"));
  EXPECT_FALSE(fs::exists(folder_ / "failing/router"));
}

TEST_F(RouterStages, DraftersThatAreNoModelsAreRefused) {
  run("router-data", collection(), "collected");
  toml::table lookup = collection();
  lookup.insert_or_assign("drafter", "lookup");
  EXPECT_THAT(stage_error("router-data", lookup), AllOf(HasSubstr("a model of its own"), HasSubstr("lookup")));
  toml::table exit = training("collected/router_data.h5");
  exit.insert_or_assign("drafter", "exit:1");
  EXPECT_THAT(stage_error("router", exit), AllOf(HasSubstr("a model of its own"), HasSubstr("exit:1")));
}

// Sends this process SIGTERM when the next file of a directory gets its name, that is when it is complete.
class StopAtNextFile {
 public:
  explicit StopAtNextFile(const fs::path& directory) : file_(open(directory.c_str(), O_RDONLY | O_CLOEXEC)) {
    watches_ = fcntl(file_, F_SETSIG, SIGTERM) == 0 && fcntl(file_, F_NOTIFY, DN_RENAME) == 0;
  }
  ~StopAtNextFile() { close(file_); }
  StopAtNextFile(const StopAtNextFile&) = delete;
  StopAtNextFile& operator=(const StopAtNextFile&) = delete;
  bool watches() const { return watches_; }

 private:
  int file_;
  bool watches_ = false;
};

TEST_F(RouterStages, AskedToStopCollectingKeepsWholeShards) {
  fs::create_directories(folder_ / "stopped");
  {
    const SignalWatch watch;
    const StopAtNextFile stop(folder_ / "stopped");
    if (!stop.watches()) GTEST_SKIP() << "the file system tells nothing of its changes (F_NOTIFY)";
    EXPECT_THROW(run("router-data", collection(), "stopped"), Interrupted);
  }
  EXPECT_TRUE(fs::exists(folder_ / "stopped/router_data.shard-000000000-000000016.h5"));
  EXPECT_FALSE(fs::exists(folder_ / "stopped/router_data.shard-000000016-000000032.h5"));
  EXPECT_FALSE(fs::exists(folder_ / "stopped/router_data.h5"));
  EXPECT_EQ(data::RouterData(folder_ / "stopped/router_data.shard-000000000-000000016.h5").rows().examples.back(), 15);
  run("router-data", collection(), "stopped");
  run("router-data", collection(), "whole");
  const data::RouterData stopped(folder_ / "stopped/router_data.h5");
  const data::RouterData whole(folder_ / "whole/router_data.h5");
  EXPECT_EQ(stopped.rows().examples, whole.rows().examples);
  EXPECT_EQ(stopped.rows().disagreement, whole.rows().disagreement);
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
