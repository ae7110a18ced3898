// Stages that read models and write data or other models: teacher outputs and logits, n-grams, pruning. Tokenizers must
// agree, and what was interrupted goes on.
#include "recipes/stages/data_stages.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/files.h"
#include "base/json.h"
#include "base/logging.h"
#include "base/signals.h"
#include "base/toml.h"
#include "data/corpus/corpus.h"
#include "data/hdf5/shards.h"
#include "data/ngrams/ngram_table.h"
#include "data/teacher/teacher_cache.h"
#include "data/tokenizers/sentencepiece.h"
#include "data/tokenizers/tokenizer.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "recipes/inspection.h"
#include "recipes/stage.h"
#include "tests/recipes/stages/stage_fixtures.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/pieces_tokenizer.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<int32_t>;

constexpr int64_t kLimit = 3;  // tokens of a teacher's output

// A model of the first tokenizer ("model") and one of a second ("foreign").
class Stages : public TrainStageTest {
 protected:
  Stages() {
    make_tokenizer("other.model", {"one two three four", "five six seven eight", "nine ten eleven"});
    save("model", 1, 8, 48);
    save("foreign", 1, 8, 48, "other.model");
  }

  toml::table outputs_of(const std::string& model) const {
    return toml::table{
        {"model", text(model)}, {"corpus", text("corpus.h5")}, {"max_new_tokens", kLimit}, {"shard_examples", 2}};
  }
};

TEST_F(Stages, TeacherOutputsRefuseATeacherOfAnotherTokenizer) {
  EXPECT_THAT(stage_error(outputs_of("foreign"), "teacher-outputs"),
              testing::AllOf(HasSubstr("foreign"), HasSubstr("another tokenizer")));
}

TEST_F(Stages, TrainingRefusesModelsOfAnotherTokenizer) {
  toml::table table{{"corpus", text("corpus.h5")}, {"tokenizer", text("spiece.model")}, {"from", text("foreign")}};
  EXPECT_THAT(stage_error(table), HasSubstr("foreign: it was made with another tokenizer"));
  table.insert_or_assign("from", text("model"));
  table.insert("teacher", text("foreign"));
  EXPECT_THAT(stage_error(table), HasSubstr("foreign: it was made with another tokenizer"));
}

TEST_F(Stages, TeacherOutputsGoOnWhateverTheTeachersPathIs) {
  run("teacher-outputs", outputs_of("model"), "whole");
  // What a killed run left: four examples in two shards, two of them cut.
  fs::create_directories(folder_ / "killed");
  const data::Corpus corpus(folder_ / "corpus.h5");
  for (const auto& [first, ends] : {std::pair{0, std::pair{1, 5}}, std::pair{2, std::pair{5, 1}}}) {
    data::CorpusWriter shard(folder_ / "killed" / fmt::format("corpus.shard-{:09}-{:09}.h5", first, first + 2),
                             info({{data::kJob, "this job"}, {"teacher", "named otherwise"}}));
    shard.add(corpus.source(first), std::vector{6, 7, ends.first});
    shard.add(corpus.source(first + 1), std::vector{6, 7, ends.second});
    shard.finish();
  }
  run("teacher-outputs", outputs_of("./model"), "killed");
  const data::Corpus whole(folder_ / "whole" / "corpus.h5"), killed(folder_ / "killed" / "corpus.h5");
  ASSERT_EQ(killed.size(), kExamples);
  EXPECT_THAT(killed.target(1), ElementsAre(6, 7, 5));
  int64_t cut = 2;
  for (int64_t i = 4; i < kExamples; ++i) {
    const auto target = killed.target(i);
    EXPECT_TRUE(std::ranges::equal(target, whole.target(i))) << i;
    cut += static_cast<int64_t>(target.size()) == kLimit && target.back() != 1 ? 1 : 0;
  }
  EXPECT_EQ(killed.info().provenance.at("count: outputs cut at max_new_tokens"), std::to_string(cut));
  EXPECT_EQ(killed.info().provenance.at("dtype"), "fp32");
}

TEST_F(Stages, NgramsAreCountedToTheSameFile) {
  const toml::table table{{"corpus", text("corpus.h5")}, {"order", 2}};
  run("ngram", table, "first");
  run("ngram", table, "second");
  EXPECT_EQ(sha256_file(folder_ / "first" / "ngram.h5"), sha256_file(folder_ / "second" / "ngram.h5"));
  const data::NgramTable ngrams(folder_ / "first" / "ngram.h5");
  EXPECT_EQ(ngrams.info().order, 2);
  EXPECT_EQ(ngrams.info().target_tokens, 5 * kExamples);
  EXPECT_EQ(ngrams.info().tokenizer_hash, tokenizer_->hash());
}

TEST_F(Stages, AskedToStopTheyLeaveNothing) {
  const SignalWatch watch;
  raise(SIGTERM);
  EXPECT_THROW(run("ngram", toml::table{{"corpus", text("corpus.h5")}}, "stopped"), Interrupted);
  EXPECT_THROW(run("prune", toml::table{{"model", text("model")}, {"vocabulary_from", text("corpus.h5")}}, "stopped"),
               Interrupted);
  EXPECT_TRUE(fs::is_empty(folder_ / "stopped"));
}

TEST_F(Stages, PruningBeginsAnewAfterAnInterruption) {
  fs::create_directories(folder_ / "pruned" / "model");  // what a killed run left
  run("prune", toml::table{{"model", text("model")}, {"ff_width", 5}, {"encoder_layers", "first:1"}}, "pruned");
  EXPECT_EQ(model::read_settings(folder_ / "pruned" / "model").config.ff_width, 5);
}

TEST_F(Stages, GenerationSettingsAndTokenizerGoWithAPrunedAndATrainedModel) {
  auto settings = load_json(folder_ / "model/generation_config.json");
  settings["repetition_penalty"] = 1.5;
  write_json(folder_ / "model/generation_config.json", settings);
  run("prune", toml::table{{"model", text("model")}, {"ff_width", 5}}, "pruned");
  run(two_steps(option("from", "model")), "trained");
  for (const char* name : {"pruned", "trained"}) {
    const fs::path made = folder_ / name / "model";
    EXPECT_EQ(model::read_settings(made).generation.repetition_penalty, 1.5) << name;
    EXPECT_EQ(data::load_tokenizer(made)->hash(), tokenizer_->hash()) << name;
  }
}

TEST_F(Stages, APrunedVocabularyIsTrainedOn) {
  run("prune",
      toml::table{
          {"model", text("model")}, {"vocabulary_from", text("corpus.h5")}, {"vocabulary_size", 20}, {"ff_width", 5}},
      "small");
  const auto config = model::load_model(folder_ / "small" / "model")->config();
  EXPECT_EQ(config.vocabulary_rows(), 20);
  EXPECT_EQ(config.vocabulary, 48);
  EXPECT_EQ(config.draft_vocabulary.stand_in, tokenizer_->unk());
  run("train",
      toml::table{{"corpus", text("corpus.h5")},
                  {"tokenizer", text("spiece.model")},
                  {"from", text("small/model")},
                  {"validation_corpus", text("corpus.h5")},
                  {"teacher", text("model")},
                  {"training", toml::table{{"length", "2 steps"},
                                           {"validation", toml::table{{"every", "1 steps"}, {"bleu_examples", 2}}}}}},
      "aligned");
  EXPECT_EQ(model::load_model(folder_ / "aligned" / "model")->config().draft_vocabulary.ids,
            config.draft_vocabulary.ids);
}

TEST_F(Stages, APrunedModelKeepsTheTypeOfItsWeights) {
  const auto whole = model::load_model(folder_ / "model", {.pack = false});
  model::save_model(folder_ / "narrow", *whole, {.dtype = at::kBFloat16});
  run("prune", toml::table{{"model", text("narrow")}, {"ff_width", 5}}, "cut");
  EXPECT_EQ(load_json(folder_ / "cut/model/config.json").at("dtype"), "bfloat16");
}

TEST_F(Stages, PruningRefusesFilesThatDoNotFit) {
  const auto refused = [&](const std::string& model, toml::table more) {
    more.insert("model", text(model));
    return stage_error(more, "prune");
  };
  EXPECT_THAT(refused("foreign", toml::table{{"vocabulary_from", text("corpus.h5")}}), HasSubstr("another tokenizer"));
  EXPECT_THAT(refused("model", toml::table{{"ff_width", 1000}}), HasSubstr("at most "));
  EXPECT_TRUE(fs::is_empty(folder_ / "failing"));
}

const std::string kFirstShard = ".shard-000000000-000000003.h5";

// An encoder-decoder and a decoder-only model, and a corpus for both.
class TeacherLogitsStage : public TrainStageTest {
 protected:
  TeacherLogitsStage() {
    make_tokenizer("other.model", {"one two three four", "five six seven eight"});
    write_corpus("prompts.h5", {{"prompts", "true"}});
    write_corpus("shorter.h5", {{"prompts", "true"}}, kExamples - 1);
    save("t5", 1, 8, 48);
    save("student", 2, 8, 48);
    save("foreign", 1, 8, 48, "other.model");
    save("llama", model::llama_config({.vocabulary = 48, .width = 8, .heads = 1, .ff_width = 8, .decoder_layers = 1}),
         "spiece.model");
  }

  toml::table options(const std::string& model, int64_t k) const {
    return toml::table{{"model", text(model)}, {"corpus", text("prompts.h5")}, {"k", k}, {"shard_examples", 3}};
  }

  fs::path cache_of(const toml::table& table, const std::string& directory) const {
    return run("teacher-logits", table, directory) / "teacher_logits.h5";
  }
};

TEST_F(TeacherLogitsStage, StoresTopKOfBothKindsOfModels) {
  for (const char* model : {"t5", "llama"}) {
    const data::TeacherCache cache(cache_of(options(model, 4), std::string("of ") + model));
    const data::TeacherCacheInfo& info = cache.info();
    const data::Corpus corpus(folder_ / "prompts.h5");
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
    toml::table table = options("t5", k);
    table.insert("states", k == 4);
    const std::string whole = sha256_file(cache_of(table, name + " whole"));
    EXPECT_EQ(data::TeacherCache(folder_ / (name + " whole") / "teacher_logits.h5").info().whole(), k == 0);
    // What a killed run left: the first of three shards.
    const data::TeacherCache cache(folder_ / (name + " whole") / "teacher_logits.h5");
    const fs::path killed = folder_ / (name + " killed");
    fs::create_directories(killed);
    data::write_teacher_cache(killed / ("teacher_logits" + kFirstShard), cache.info(),
                              std::vector{cache.rows(0), cache.rows(1), cache.rows(2)});
    EXPECT_EQ(sha256_file(cache_of(table, name + " killed")), whole);
  }
}

TEST_F(TeacherLogitsStage, AskedToStopKeepsWholeShards) {
  const fs::path shard = folder_ / "stopped" / ("teacher_logits" + kFirstShard);
  fs::create_directories(shard.parent_path());
  {
    const data::TeacherCache whole(cache_of(options("t5", 4), "whole"));
    data::write_teacher_cache(shard, whole.info(), std::vector{whole.rows(0), whole.rows(1), whole.rows(2)});
  }
  const auto made = fs::last_write_time(shard);
  const SignalWatch watch;
  raise(SIGTERM);
  EXPECT_THROW(cache_of(options("t5", 4), "stopped"), Interrupted);
  EXPECT_EQ(fs::last_write_time(shard), made);
  EXPECT_FALSE(fs::exists(folder_ / "stopped" / "teacher_logits.h5"));
}

TEST_F(TeacherLogitsStage, IsInspectedAndVerified) {
  const fs::path file = cache_of(options("t5", 4), "cache");
  EXPECT_THAT(inspect(file), AllOf(HasSubstr("teacher cache of 8 examples"), HasSubstr("28 bytes each")));
  EXPECT_TRUE(verify(file).empty());
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_FALSE(verify(file).empty());
}

TEST_F(TeacherLogitsStage, RefusesATeacherOfAnotherTokenizerAndMoreIdsThanThereAre) {
  EXPECT_THAT(error_of([&] { cache_of(options("foreign", 4), "failing"); }),
              AllOf(HasSubstr("foreign"), HasSubstr("another tokenizer")));
  EXPECT_THAT(error_of([&] { cache_of(options("t5", 49), "failing"); }),
              AllOf(HasSubstr("at most 48"), HasSubstr("49")));
  EXPECT_TRUE(fs::is_empty(folder_ / "failing"));
}

TEST_F(TeacherLogitsStage, ACacheServesOnlyItsTeacherAndCorpus) {
  const fs::path file = cache_of(options("t5", 4), "cache");
  const data::Corpus corpus(folder_ / "prompts.h5"), shorter(folder_ / "shorter.h5");
  EXPECT_EQ(open_teacher_cache(file, corpus, folder_ / "t5").info().examples, kExamples);
  EXPECT_EQ(open_teacher_cache(file, corpus, {}).info().examples, kExamples);
  EXPECT_THAT(error_of([&] { open_teacher_cache(file, corpus, folder_ / "student"); }),
              AllOf(HasSubstr("another teacher"), HasSubstr(text("student")), HasSubstr(text("t5"))));
  EXPECT_THAT(error_of([&] { open_teacher_cache(file, shorter, folder_ / "t5"); }),
              AllOf(HasSubstr("another corpus"), HasSubstr("shorter.h5"), HasSubstr("prompts.h5")));
  data::CorpusWriter writer(folder_ / "foreign.h5", {.tokenizer_hash = "another", .vocabulary = 20});
  writer.add(std::vector{3}, std::vector{4});
  writer.finish();
  const data::Corpus foreign(folder_ / "foreign.h5");
  EXPECT_THAT(error_of([&] { open_teacher_cache(file, foreign, {}); }),
              AllOf(HasSubstr("another tokenizer"), HasSubstr("foreign.h5"), HasSubstr("another corpus")));
}

// A decoder-only model with random weights, an encoder-decoder, and a corpus of plain text; ids for text.
class TeacherOutputs : public StageTest {
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

  toml::table table(const std::string& model = "gpt") const {
    return toml::table{{"model", text(model)},
                       {"corpus", text("texts.h5")},
                       {"max_new_tokens", 6},
                       {"shard_examples", 4},
                       {"prompt_tokens", 2}};
  }

  data::Corpus outputs(const toml::table& table, const std::string& directory) const {
    return data::Corpus(run("teacher-outputs", table, directory) / "corpus.h5");
  }

  static std::vector<Tokens> targets_of(const data::Corpus& corpus) {
    std::vector<Tokens> targets;
    for (int64_t i = 0; i < corpus.size(); ++i) targets.emplace_back(corpus.target(i).begin(), corpus.target(i).end());
    return targets;
  }
};

TEST_F(TeacherOutputs, OfPlainTextContinueItsFirstTokens) {
  const data::Corpus continued = outputs(table(), "outputs");
  ASSERT_EQ(continued.size(), 7);
  for (int32_t i = 0; i < 6; ++i) EXPECT_THAT(continued.source(i), ElementsAre(2 + i, 30 - i));
  EXPECT_TRUE(continued.source(6).empty());  // nothing but EOS
  const auto targets = targets_of(continued);
  EXPECT_GT(std::set<Tokens>(targets.begin(), targets.end()).size(), 3U);
  EXPECT_TRUE(data::continues_prompts(continued.info()));
  EXPECT_EQ(continued.info().provenance.at("prompt_tokens"), "2");
}

TEST_F(TeacherOutputs, ThatWouldAllBeTheSameAreRefused) {
  toml::table none = table();
  none.insert_or_assign("prompt_tokens", 0);
  EXPECT_THAT(error_of([&] { outputs(none, "none"); }),
              AllOf(HasSubstr("prompt_tokens"), HasSubstr("same output"), HasSubstr("texts.h5")));
  EXPECT_THAT(error_of([&] { outputs(table("t5"), "t5-outputs"); }), HasSubstr("no sources"));
  none.insert("temperature", 1.0);
  const auto sampled = targets_of(outputs(none, "sampled"));
  EXPECT_GT(std::set<Tokens>(sampled.begin(), sampled.end()).size(), 3U);
}

TEST_F(TeacherOutputs, AreRefusedBeforeTheFirstIfASourceIsTooLongOrForAnEncoder) {
  const auto of_sources = [&](const std::map<std::string, std::string>& provenance) {
    data::CorpusWriter writer(folder_ / "pairs.h5",
                              {.tokenizer_hash = "abc", .vocabulary = 40, .provenance = provenance});
    for (int32_t i = 0; i < 6; ++i) writer.add(Tokens(i == 5 ? 500 : 3, 2 + i), Tokens{9, 1});
    writer.finish();
    toml::table stage = table();
    stage.insert_or_assign("corpus", text("pairs.h5"));
    return stage_error(stage, "teacher-outputs");
  };
  EXPECT_THAT(of_sources({{"prompts", "true"}}), AllOf(HasSubstr("pairs.h5, input 6"), HasSubstr("max_source")));
  EXPECT_TRUE(fs::is_empty(folder_ / "failing"));
  EXPECT_THAT(of_sources({}), HasSubstr("set prompts = true"));
}

TEST_F(TeacherOutputs, AreSampledFromWholeDistributionsWhateverTheModelsSettingsAre) {
  auto settings = load_json(folder_ / "gpt/generation_config.json");
  settings["top_k"] = 1;
  settings["top_p"] = 0.1;
  settings["min_p"] = 1.0;
  write_json(folder_ / "gpt/generation_config.json", settings);
  const data::Corpus greedy = outputs(table(), "greedy");
  toml::table sampling = table();
  sampling.insert("temperature", 1.0);
  const data::Corpus sampled = outputs(sampling, "sampled");
  EXPECT_NE(targets_of(sampled), targets_of(greedy));
  sampling.insert_or_assign("shard_examples", 1);
  EXPECT_EQ(targets_of(outputs(sampling, "shards")), targets_of(sampled)) << "an example's numbers are its own";
}

TEST_F(TeacherOutputs, OfTranslationModelsBeginWithTheLanguageThatIsAskedFor) {
  const int32_t french = save_translator();
  const auto outputs_in = [&](const std::string& source, const std::string& target) {
    toml::table stage = table("mbart");
    stage.insert_or_assign("corpus", text("german.h5"));
    if (!source.empty()) stage.insert("source_language", source);
    if (!target.empty()) stage.insert("target_language", target);
    return outputs(stage, "of " + source + target);
  };
  const data::Corpus both = outputs_in("de_DE", "fr_XX");
  for (const Tokens& target : targets_of(both)) EXPECT_EQ(target.front(), french);
  EXPECT_EQ(targets_of(both), targets_of(outputs_in("", "fr_XX")));
  EXPECT_NE(targets_of(both), targets_of(outputs_in("", "")));
  EXPECT_EQ(both.info().provenance.at("target_language"), "fr_XX");
  EXPECT_THAT(error_of([&] { outputs_in("en_XX", "fr_XX"); }), AllOf(HasSubstr("example 0"), HasSubstr("en_XX first")));
  EXPECT_THAT(error_of([&] { outputs_in("de_DE", "fr_XY"); }), HasSubstr("did you mean fr_XX"));
}

// One batch, which takes a second.
TEST_F(TeacherOutputs, AskedToStopAmidABatchTheyLeaveNothing) {
  data::CorpusWriter writer(folder_ / "many.h5", {.tokenizer_hash = "abc", .vocabulary = 40});
  for (int32_t i = 0; i < 4000; ++i) writer.add({}, Tokens{2 + i % 30, 30 - i % 20, 9, 1});
  writer.finish();
  toml::table many = table();
  many.insert_or_assign("corpus", text("many.h5"));
  many.insert_or_assign("max_new_tokens", 60);
  many.insert_or_assign("shard_examples", 4096);
  many.insert("batch_size", 4096);
  many.insert("temperature", 1.0);
  const fs::path stopped = folder_ / "stopped";
  fs::create_directories(stopped);
  {
    const SignalWatch watch;
    const auto pass = [] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); };
    std::thread user([&] {
      for (int i = 0; i < 1000 && fs::is_empty(stopped); ++i) pass();  // the shard is begun
      pass();
      request_stop(SIGTERM);
    });
    EXPECT_THROW(outputs(many, "stopped"), Interrupted);
    user.join();
  }
  EXPECT_TRUE(fs::is_empty(stopped));
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
