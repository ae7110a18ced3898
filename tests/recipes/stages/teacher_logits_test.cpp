// The stage that stores a teacher's distributions: what it writes, that it goes on bit for bit, and what may be
// distilled from it.
#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/sha256.h"
#include "base/signals.h"
#include "base/toml.h"
#include "data/teacher/teacher_cache.h"
#include "data/tokenizers/sentencepiece.h"
#include "data/tokenizers/tokenizer.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "recipes/inspection.h"
#include "recipes/stage.h"
#include "recipes/stages/train_stage.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kExamples = 7;
const std::string kFirstShard = ".shard-000000000-000000003.h5";

// A tokenizer, a corpus of it, an encoder-decoder and a decoder-only model.
class TeacherLogitsStage : public testing::Test {
 protected:
  void SetUp() override {
    make_tokenizer({"the cat sees the dog", "a dog sees a cat", "the bird sings"}, "spiece.model");
    make_tokenizer({"one two three four", "five six seven eight"}, "other.model");
    tokenizer_ = data::load_tokenizer(folder_ / "spiece.model");
    write_corpus("corpus.h5", kExamples, {{"prompts", "true"}});
    write_corpus("shorter.h5", kExamples - 1, {{"prompts", "true"}});
    save("t5", {.seed = 5});
    save("student", {.seed = 6});
    save("foreign", {.seed = 5, .tokenizer = "other.model"});
    save("llama", {.seed = 5, .encoder_decoder = false});
  }

  struct Model {
    uint64_t seed = 0;
    std::string tokenizer = "spiece.model";
    bool encoder_decoder = true;
  };

  void make_tokenizer(const std::vector<std::string>& lines, const std::string& name) const {
    data::train_tokenizer(lines, {.vocabulary = 30, .exact_size = false}, folder_ / name);
  }

  void write_corpus(const std::string& name, int64_t examples, const std::map<std::string, std::string>& notes) const {
    data::CorpusWriter writer(
        folder_ / name,
        {.tokenizer_hash = tokenizer_->hash(), .vocabulary = tokenizer_->vocabulary(), .provenance = notes});
    for (int32_t i = 0; i < examples; ++i) {
      writer.add(std::vector{3 + i % 7, 4}, std::vector<int32_t>(static_cast<size_t>(1 + i % 3), 5 + i % 7));
    }
    writer.finish();
  }

  void save(const std::string& name, const Model& wanted) const {
    const model::ModelSizes sizes = {.vocabulary = 48, .width = 8, .heads = 1, .ff_width = 8, .decoder_layers = 1};
    model::TransformerConfig config = wanted.encoder_decoder ? model::t5_config(sizes) : model::llama_config(sizes);
    config.tied_head = false;
    config.initializer_range = 0.5;
    model::SaveOptions options;
    options.tokenizer = folder_ / wanted.tokenizer;
    model::save_model(folder_ / name, model::TransformerModel(config, wanted.seed), options);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  toml::table options(const std::string& model, int64_t k) const {
    return toml::table{{"model", path(model)}, {"corpus", path("corpus.h5")}, {"k", k}, {"shard_examples", 3}};
  }

  fs::path run(const toml::table& table, const std::string& directory) const {
    fs::create_directories(folder_ / directory);
    const Execution execution{.device = "cpu", .threads = 1, .quiet = true};
    stage_kinds()
        .find("teacher-logits")
        ->run(table, {.directory = folder_ / directory, .identity = "this job", .execution = execution});
    return folder_ / directory / "teacher_logits.h5";
  }

  TemporaryDirectory folder_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
};

TEST_F(TeacherLogitsStage, StoresTopKOfBothKindsOfModels) {
  for (const char* model : {"t5", "llama"}) {
    const data::TeacherCache cache(run(options(model, 4), std::string("of ") + model));
    const data::TeacherCacheInfo& info = cache.info();
    const data::Corpus corpus(folder_ / "corpus.h5");
    EXPECT_EQ(info.k, 4);
    EXPECT_EQ(info.vocabulary, 48);
    EXPECT_EQ(info.positions, corpus.info().target_tokens);
    EXPECT_EQ(info.teacher_hash, model::model_hash(folder_ / model));
    EXPECT_EQ(info.corpus_hash, data::corpus_hash(corpus));
    for (int64_t i = 0; i < kExamples; ++i) {
      EXPECT_EQ(cache.positions(i), static_cast<int64_t>(corpus.target(i).size())) << i;
    }
    EXPECT_EQ(std::distance(fs::directory_iterator(cache.file().parent_path()), {}), 1) << "no shard is left";
  }
}

TEST_F(TeacherLogitsStage, GoesOnWithTheMissingShardsBitForBit) {
  for (const int64_t k : {4, 0}) {
    const std::string name = "k" + std::to_string(k);
    const std::string whole = sha256_file(run(options("t5", k), name + " whole"));
    EXPECT_EQ(data::TeacherCache(folder_ / (name + " whole") / "teacher_logits.h5").info().whole(), k == 0);
    run(options("t5", k), name + " killed");
    const fs::path killed = folder_ / (name + " killed");
    // What a killed run left: the first of three shards.
    {
      const data::TeacherCache cache(killed / "teacher_logits.h5");
      data::ShardedTeacherCache shards(killed / "again.h5", cache.info(), kExamples);
      shards.add_shard({0, 3}, std::vector{cache.rows(0), cache.rows(1), cache.rows(2)});
    }
    fs::rename(killed / ("again" + kFirstShard), killed / ("teacher_logits" + kFirstShard));
    fs::remove(killed / "teacher_logits.h5");
    EXPECT_EQ(sha256_file(run(options("t5", k), name + " killed")), whole);
  }
}

TEST_F(TeacherLogitsStage, AskedToStopKeepsWholeShards) {
  const fs::path shard = folder_ / "stopped" / ("teacher_logits" + kFirstShard);
  fs::create_directories(shard.parent_path());
  {
    const data::TeacherCache whole(run(options("t5", 4), "whole"));
    data::ShardedTeacherCache(folder_ / "stopped" / "teacher_logits.h5", whole.info(), kExamples)
        .add_shard({0, 3}, std::vector{whole.rows(0), whole.rows(1), whole.rows(2)});
  }
  const auto made = fs::last_write_time(shard);
  const SignalWatch watch;
  raise(SIGTERM);
  EXPECT_THROW(run(options("t5", 4), "stopped"), Interrupted);
  EXPECT_EQ(fs::last_write_time(shard), made);
  EXPECT_FALSE(fs::exists(folder_ / "stopped" / "teacher_logits.h5"));
}

TEST_F(TeacherLogitsStage, IsInspectedAndVerified) {
  const fs::path file = run(options("t5", 4), "cache");
  EXPECT_THAT(inspect(file), AllOf(HasSubstr("teacher cache of 7 examples"), HasSubstr("28 bytes each")));
  EXPECT_TRUE(verify(file).empty());
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_FALSE(verify(file).empty());
}

TEST_F(TeacherLogitsStage, RefusesATeacherOfAnotherTokenizerAndMoreIdsThanThereAre) {
  EXPECT_THAT(error_of([&] { run(options("foreign", 4), "failing"); }),
              AllOf(HasSubstr("foreign"), HasSubstr("another tokenizer")));
  EXPECT_THAT(error_of([&] { run(options("t5", 49), "failing"); }), AllOf(HasSubstr("at most 48"), HasSubstr("49")));
  EXPECT_TRUE(fs::is_empty(folder_ / "failing"));
}

TEST_F(TeacherLogitsStage, ACacheServesOnlyItsTeacherAndCorpus) {
  const fs::path file = run(options("t5", 4), "cache");
  const data::Corpus corpus(folder_ / "corpus.h5"), shorter(folder_ / "shorter.h5");
  EXPECT_EQ(open_teacher_cache(file, corpus, folder_ / "t5").info().examples, kExamples);
  EXPECT_EQ(open_teacher_cache(file, corpus, {}).info().examples, kExamples);
  EXPECT_THAT(error_of([&] { open_teacher_cache(file, corpus, folder_ / "student"); }),
              AllOf(HasSubstr("another teacher"), HasSubstr(path("student")), HasSubstr(path("t5"))));
  EXPECT_THAT(error_of([&] { open_teacher_cache(file, shorter, folder_ / "t5"); }),
              AllOf(HasSubstr("another corpus"), HasSubstr("shorter.h5"), HasSubstr("corpus.h5")));
  data::CorpusWriter writer(folder_ / "foreign.h5", {.tokenizer_hash = "another", .vocabulary = 20});
  writer.add(std::vector{3}, std::vector{4});
  writer.finish();
  const data::Corpus foreign(folder_ / "foreign.h5");
  EXPECT_THAT(error_of([&] { open_teacher_cache(file, foreign, {}); }),
              AllOf(HasSubstr("another tokenizer"), HasSubstr("foreign.h5"), HasSubstr("another corpus")));
}

}  // namespace
}  // namespace draftsmith::recipes
