// Teacher outputs: of plain text, sampled from whole distributions, and with their own identity.
#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "base/toml.h"
#include "data/corpus/corpus.h"
#include "model/files/checkpoint.h"
#include "recipes/stage.h"
#include "recipes/stages/data_stages.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/pieces_tokenizer.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Tokens = std::vector<int32_t>;

// A decoder-only model with random weights, an encoder-decoder, and a corpus of plain text; ids for text.
class TeacherOutputs : public testing::Test {
 protected:
  void SetUp() override {
    model::TransformerConfig config = model::gpt2_config({.decoder_layers = 1});
    config.initializer_range = 0.5;
    config.bos = 1;
    model::save_model(folder_ / "gpt", model::TransformerModel(config, 1));
    model::save_model(folder_ / "t5", model::TransformerModel(model::t5_config(), 1));
    data::CorpusWriter writer(folder_ / "texts.h5", {.tokenizer_hash = "abc", .vocabulary = 40});
    for (int32_t i = 0; i < 6; ++i) writer.add({}, Tokens{2 + i, 30 - i, 9, 1});
    writer.add({}, Tokens{1});
    writer.finish();
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  toml::table table(const std::string& model = "gpt") const {
    return toml::table{{"model", path(model)},
                       {"corpus", path("texts.h5")},
                       {"max_new_tokens", 6},
                       {"shard_examples", 4},
                       {"prompt_tokens", 2}};
  }

  data::Corpus run(const toml::table& table, const std::string& directory) const {
    fs::create_directories(folder_ / directory);
    const Execution execution{.device = "cpu", .threads = 1, .quiet = true};
    stage_kinds()
        .find("teacher-outputs")
        ->run(table, {.directory = folder_ / directory, .identity = "this job", .execution = execution});
    return data::Corpus(folder_ / directory / "corpus.h5");
  }

  static std::vector<Tokens> targets_of(const data::Corpus& corpus) {
    std::vector<Tokens> targets;
    for (int64_t i = 0; i < corpus.size(); ++i) targets.emplace_back(corpus.target(i).begin(), corpus.target(i).end());
    return targets;
  }

  TemporaryDirectory folder_;
};

TEST_F(TeacherOutputs, OfPlainTextContinueItsFirstTokens) {
  const data::Corpus outputs = run(table(), "outputs");
  ASSERT_EQ(outputs.size(), 7);
  for (int32_t i = 0; i < 6; ++i) EXPECT_THAT(outputs.source(i), ElementsAre(2 + i, 30 - i));
  EXPECT_TRUE(outputs.source(6).empty());  // nothing but EOS
  const auto targets = targets_of(outputs);
  EXPECT_GT(std::set<Tokens>(targets.begin(), targets.end()).size(), 3U);
  EXPECT_TRUE(data::continues_prompts(outputs.info()));
  EXPECT_EQ(outputs.info().provenance.at("prompt_tokens"), "2");
}

TEST_F(TeacherOutputs, ThatWouldAllBeTheSameAreRefused) {
  toml::table none = table();
  none.insert_or_assign("prompt_tokens", 0);
  EXPECT_THAT(error_of([&] { run(none, "none"); }),
              AllOf(HasSubstr("prompt_tokens"), HasSubstr("same output"), HasSubstr("texts.h5")));
  EXPECT_THAT(error_of([&] { run(table("t5"), "t5-outputs"); }), HasSubstr("no sources"));
  none.insert("temperature", 1.0);
  const auto sampled = targets_of(run(none, "sampled"));
  EXPECT_GT(std::set<Tokens>(sampled.begin(), sampled.end()).size(), 3U);
}

TEST_F(TeacherOutputs, AreSampledFromWholeDistributionsWhateverTheModelsSettingsAre) {
  auto settings = load_json(folder_ / "gpt/generation_config.json");
  settings["top_k"] = 1;
  settings["top_p"] = 0.1;
  settings["min_p"] = 1.0;
  write_json(folder_ / "gpt/generation_config.json", settings);
  const data::Corpus greedy = run(table(), "greedy");
  toml::table sampling = table();
  sampling.insert("temperature", 1.0);
  const data::Corpus sampled = run(sampling, "sampled");
  EXPECT_NE(targets_of(sampled), targets_of(greedy));
  EXPECT_EQ(sampled.info().provenance.at("top_k"), "0");
  EXPECT_EQ(sampled.info().provenance.at("top_p"), "1");
  sampling.insert("top_k", 1);
  const data::Corpus first = run(sampling, "first");
  EXPECT_EQ(targets_of(first), targets_of(greedy));
  EXPECT_EQ(first.info().provenance.at("top_k"), "1");
}

TEST_F(TeacherOutputs, GreedyOnesAreNotTruncated) {
  toml::table options{{"model", path("gpt")}, {"corpus", path("texts.h5")}, {"temperature", 0.0}, {"top_p", 0.9}};
  Problems problems;
  stage_kinds().find("teacher-outputs")->check(options, "outputs", problems);
  EXPECT_THAT(text_of(problems.list()), AllOf(HasSubstr("top_p"), HasSubstr("greedy")));
}

// A tokenizer whose texts begin with BOS.
class FramedPieces : public infer::testing::Pieces {
 public:
  using infer::testing::Pieces::Pieces;
  data::TextFrame frame() const override { return {.before = {7}, .after = {}}; }
};

TEST_F(TeacherOutputs, PromptsOfTextBeginWithBosAsThoseOfCorpora) {
  const data::Corpus texts(folder_ / "texts.h5");
  const model::TransformerModel gpt(model::gpt2_config({.decoder_layers = 1}), 1);
  const FramedPieces tokenizer(40);
  EXPECT_THAT(DecodedSources(texts, gpt.info(), &tokenizer, 2)(1), ElementsAre(7, 3, 29));
  EXPECT_THAT(DecodedSources(texts, gpt.info(), nullptr, 2)(1), ElementsAre(3, 29));
  EXPECT_THAT(DecodedSources(texts, gpt.info(), nullptr, 9)(1), ElementsAre(3, 29, 9));  // not EOS
}

}  // namespace
}  // namespace draftsmith::recipes
