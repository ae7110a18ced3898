// Stages that read models: tokenizers must agree, and teacher outputs go on where they stopped.
#include <algorithm>
#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/sha256.h"
#include "base/signals.h"
#include "base/toml.h"
#include "data/corpus/sharded_corpus.h"
#include "data/ngrams/ngram_table.h"
#include "data/tokenizers/sentencepiece.h"
#include "data/tokenizers/tokenizer.h"
#include "model/files/checkpoint.h"
#include "recipes/stage.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kCorpusExamples = 7;
constexpr int64_t kLimit = 3;  // tokens of a teacher's output

// Two tokenizers, a corpus and a model of the first ("model") and a model of the second ("foreign").
class Stages : public testing::Test {
 protected:
  void SetUp() override {
    make_tokenizer({"the cat sees the dog", "a dog sees a cat", "the bird sings", "a tall man walks"}, "spiece.model");
    make_tokenizer({"one two three four", "five six seven eight", "nine ten eleven", "one more than ten"},
                   "other.model");
    tokenizer_ = data::load_tokenizer(folder_ / "spiece.model");
    data::CorpusWriter writer(folder_ / "corpus.h5", info());
    for (int32_t i = 0; i < kCorpusExamples; ++i) writer.add(std::vector{3 + i, 1}, std::vector{4, 1});
    writer.finish();
    save("model", "spiece.model");
    save("foreign", "other.model");
  }

  void make_tokenizer(const std::vector<std::string>& lines, const std::string& name) const {
    data::train_tokenizer(lines, {.vocabulary = 40, .exact_size = false}, folder_ / name);
  }

  data::CorpusInfo info() const {
    return {.tokenizer_hash = tokenizer_->hash(), .vocabulary = tokenizer_->vocabulary()};
  }

  void save(const std::string& name, const std::string& tokenizer) const {
    const model::TransformerConfig config =
        model::t5_config({.vocabulary = 48, .width = 8, .heads = 1, .ff_width = 8, .decoder_layers = 1});
    model::SaveOptions options;
    options.tokenizer = folder_ / tokenizer;
    model::save_model(folder_ / name, model::TransformerModel(config, 5), options);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void run(const std::string& kind, const toml::table& table, const std::string& directory) const {
    fs::create_directories(folder_ / directory);
    const Execution execution{.device = "cpu", .threads = 1, .quiet = true};
    stage_kinds().find(kind)->run(table,
                                  {.directory = folder_ / directory, .identity = "this job", .execution = execution});
  }

  toml::table outputs_of(const std::string& model) const {
    return toml::table{
        {"model", model}, {"corpus", path("corpus.h5")}, {"max_new_tokens", kLimit}, {"shard_examples", 2}};
  }

  std::string stage_error(const std::string& kind, const toml::table& table) const {
    return error_of([&] { run(kind, table, "failing"); });
  }

  TemporaryDirectory folder_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
};

TEST_F(Stages, TeacherOutputsRefuseATeacherOfAnotherTokenizer) {
  EXPECT_THAT(stage_error("teacher-outputs", outputs_of(path("foreign"))),
              testing::AllOf(HasSubstr("foreign"), HasSubstr("another tokenizer")));
}

TEST_F(Stages, TrainingRefusesModelsOfAnotherTokenizer) {
  toml::table table{{"corpus", path("corpus.h5")}, {"tokenizer", path("spiece.model")}, {"from", path("foreign")}};
  EXPECT_THAT(stage_error("train", table), HasSubstr("foreign: it was made with another tokenizer"));
  table.insert_or_assign("from", path("model"));
  table.insert("teacher", path("foreign"));
  EXPECT_THAT(stage_error("train", table), HasSubstr("foreign: it was made with another tokenizer"));
}

TEST_F(Stages, TeacherOutputsGoOnWhateverTheTeachersPathIs) {
  run("teacher-outputs", outputs_of(path("model")), "whole");
  // What a killed run left: four examples in two shards, two of them cut.
  fs::create_directories(folder_ / "killed");
  auto shard_info = info();
  shard_info.provenance = {{data::kJob, "this job"}, {"teacher", "named otherwise"}};
  {
    data::ShardedCorpusWriter writer(folder_ / "killed" / "corpus.h5", shard_info, kCorpusExamples);
    const data::Corpus corpus(folder_ / "corpus.h5");
    for (const auto& [first, ends] : {std::pair{0, std::pair{1, 5}}, std::pair{2, std::pair{5, 1}}}) {
      writer.write({first, first + 2}, [&](data::CorpusWriter& shard) {
        shard.add(corpus.source(first), std::vector{6, 7, ends.first});
        shard.add(corpus.source(first + 1), std::vector{6, 7, ends.second});
      });
    }
  }
  run("teacher-outputs", outputs_of(path("./model")), "killed");
  const data::Corpus whole(folder_ / "whole" / "corpus.h5"), killed(folder_ / "killed" / "corpus.h5");
  ASSERT_EQ(killed.size(), kCorpusExamples);
  EXPECT_THAT(killed.target(1), ElementsAre(6, 7, 5));
  int64_t cut = 2;
  for (int64_t i = 4; i < kCorpusExamples; ++i) {
    const auto target = killed.target(i);
    EXPECT_TRUE(std::ranges::equal(target, whole.target(i))) << i;
    cut += static_cast<int64_t>(target.size()) == kLimit && target.back() != 1 ? 1 : 0;
  }
  EXPECT_EQ(killed.info().provenance.at("count: outputs cut at max_new_tokens"), std::to_string(cut));
  EXPECT_EQ(killed.info().provenance.at("dtype"), "fp32");
}

TEST_F(Stages, NgramsAreCountedAnewAfterAnInterruption) {
  const toml::table table{{"corpus", path("corpus.h5")}, {"order", 2}};
  run("ngram", table, "whole");
  // What a killed run left.
  fs::create_directories(folder_ / "killed" / ".ngram.h5.parts.tmp-1-2-3");
  write_file_atomic(folder_ / "killed" / ".ngram.h5.tmp-1-2-4", "half a file");
  run("ngram", table, "killed");
  EXPECT_EQ(sha256_file(folder_ / "killed" / "ngram.h5"), sha256_file(folder_ / "whole" / "ngram.h5"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "killed"), {}), 1);
  const data::NgramTable ngrams(folder_ / "killed" / "ngram.h5");
  EXPECT_EQ(ngrams.info().order, 2);
  EXPECT_EQ(ngrams.info().target_tokens, 2 * kCorpusExamples);
  EXPECT_EQ(ngrams.info().tokenizer_hash, tokenizer_->hash());
}

TEST_F(Stages, AskedToStopCountingLeavesNothing) {
  const SignalWatch watch;
  raise(SIGTERM);
  EXPECT_THROW(run("ngram", toml::table{{"corpus", path("corpus.h5")}}, "stopped"), Interrupted);
  EXPECT_TRUE(fs::is_empty(folder_ / "stopped"));
}

// A pruned model is one that training starts from and generation settings and tokenizer go with.
TEST_F(Stages, PruningMakesAModelThatTrainingStartsFrom) {
  fs::create_directories(folder_ / "pruned" / "model");  // what a killed run left
  fs::create_directories(folder_ / "pruned" / ".model.tmp-1-2-3");
  run("prune", toml::table{{"model", path("model")}, {"ff_width", 5}, {"encoder_layers", "first:1"}}, "pruned");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "pruned"), {}), 1);
  EXPECT_EQ(model::load_config(folder_ / "pruned" / "model").ff_width, 5);
  EXPECT_EQ(data::load_tokenizer(folder_ / "pruned" / "model")->hash(), tokenizer_->hash());
  run("train",
      toml::table{{"corpus", path("corpus.h5")},
                  {"tokenizer", path("spiece.model")},
                  {"from", path("pruned/model")},
                  {"training", toml::table{{"length", "2 steps"}}}},
      "trained");
  EXPECT_EQ(model::load_config(folder_ / "trained" / "model").ff_width, 5);
}

TEST_F(Stages, APrunedVocabularyIsTrainedOn) {
  run("prune",
      toml::table{{"model", path("model")},
                  {"vocabulary_from", path("corpus.h5")},
                  {"vocabulary_size", 20},
                  {"ff_width", 5},
                  {"by", "activation"},
                  {"calibration", path("corpus.h5")}},
      "small");
  const auto config = model::load_model(folder_ / "small" / "model")->config();
  EXPECT_EQ(config.vocabulary_rows(), 20);
  EXPECT_EQ(config.vocabulary, 48);
  EXPECT_EQ(config.draft_vocabulary.stand_in, tokenizer_->unk());
  run("train",
      toml::table{{"corpus", path("corpus.h5")},
                  {"tokenizer", path("spiece.model")},
                  {"from", path("small/model")},
                  {"validation_corpus", path("corpus.h5")},
                  {"teacher", path("model")},
                  {"training", toml::table{{"length", "2 steps"},
                                           {"validation", toml::table{{"every", "1 steps"}, {"bleu_examples", 2}}}}}},
      "aligned");
  EXPECT_EQ(model::load_model(folder_ / "aligned" / "model")->config().draft_vocabulary.ids,
            config.draft_vocabulary.ids);
}

TEST_F(Stages, PruningRefusesFilesThatDoNotFit) {
  write_file_atomic(folder_ / "lines.txt", "the cat sees the dog\n");
  EXPECT_THAT(stage_error("prune", toml::table{{"model", path("foreign")}, {"vocabulary_from", path("corpus.h5")}}),
              HasSubstr("another tokenizer"));
  EXPECT_THAT(stage_error("prune", toml::table{{"model", path("model")},
                                               {"ff_width", 5},
                                               {"by", "activation"},
                                               {"calibration", path("lines.txt")}}),
              HasSubstr("pairs of source and target"));
  run("prune", toml::table{{"model", path("model")}, {"vocabulary_from", path("lines.txt")}}, "by text");
  const auto ids = model::load_model(folder_ / "by text" / "model")->config().draft_vocabulary.ids;
  for (const int32_t id : tokenizer_->encode("the cat sees the dog")) {
    EXPECT_TRUE(std::binary_search(ids.begin(), ids.end(), id)) << id;
  }
  EXPECT_LT(ids.size(), 20u);
}

TEST_F(Stages, PruningToMoreThanThereIsWritesNothing) {
  EXPECT_THAT(stage_error("prune", toml::table{{"model", path("model")}, {"heads", 2}}), HasSubstr("at most 1"));
  EXPECT_TRUE(fs::is_empty(folder_ / "failing"));
}

TEST_F(Stages, AskedToStopPruningLeavesNothing) {
  const SignalWatch watch;
  raise(SIGTERM);
  EXPECT_THROW(run("prune", toml::table{{"model", path("model")}, {"vocabulary_from", path("corpus.h5")}}, "stopped"),
               Interrupted);
  EXPECT_TRUE(fs::is_empty(folder_ / "stopped"));
}

TEST_F(Stages, AskedToStopTeacherOutputsKeepWholeShards) {
  const SignalWatch watch;
  raise(SIGTERM);
  EXPECT_THROW(run("teacher-outputs", outputs_of(path("model")), "stopped"), Interrupted);
}

}  // namespace
}  // namespace draftsmith::recipes
