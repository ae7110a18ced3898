// A folder in which stages are run and refused, alone or with a tokenizer, a corpus and small models.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/toml.h"
#include "data/corpus/corpus.h"
#include "data/tokenizers/sentencepiece.h"
#include "data/tokenizers/tokenizer.h"
#include "model/files/checkpoint.h"
#include "recipes/stage.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::recipes {

class StageTest : public testing::Test {
 protected:
  std::filesystem::path path(const std::string& name) const { return folder_ / name; }
  std::string text(const std::string& name) const { return path(name).string(); }
  std::string option(const std::string& key, const std::string& file) const {
    return key + " = \"" + text(file) + "\"\n";
  }

  // Returns the stage's directory.
  std::filesystem::path run(const std::string& kind, const toml::table& table, const std::string& directory) const {
    std::filesystem::create_directories(path(directory));
    const Execution execution{{.device = "cpu", .threads = 1}};
    stage_kinds().find(kind)->run(table,
                                  {.directory = path(directory), .identity = "this job", .execution = execution});
    return path(directory);
  }
  void run(const toml::table& table, const std::string& directory) const { run("train", table, directory); }

  std::string stage_error(const toml::table& table, const std::string& kind = "train") const {
    return error_of([&] { run(kind, table, "failing"); });
  }
  // What `draftsmith validate` says.
  static std::string problems_of(const toml::table& table, const std::string& kind = "train") {
    Problems problems;
    stage_kinds().find(kind)->check(table, "t", problems);
    return error_of([&] { problems.throw_if_any(); });
  }

  // Saves a model whose tokenizer has languages ("mbart") and sources in German ("german.h5"). Returns French.
  int32_t save_translator() const {
    model::save_model(path("mbart"), model::TransformerModel(model::t5_config({.vocabulary = 60}), 1));
    data::train_tokenizer({"the cat sees the dog", "a dog sees a cat", "the bird sings"},
                          {.vocabulary = 40, .exact_size = false}, path("mbart/sentencepiece.bpe.model"));
    write_file_atomic(path("mbart/tokenizer_config.json"),
                      R"({"additional_special_tokens": ["de_DE", "en_XX", "fr_XX"], "mask_token": "<mask>"})");
    const auto tokenizer =
        data::load_tokenizer(path("mbart"), {.source_language = "de_DE", .target_language = "fr_XX"});
    const int32_t german = tokenizer->frames().source.before.front();
    data::CorpusWriter writer(path("german.h5"),
                              {.tokenizer_hash = tokenizer->hash(), .vocabulary = tokenizer->vocabulary()});
    for (int32_t i = 0; i < 5; ++i) writer.add(std::vector{german, 5 + i, 6, 2}, std::vector{german, 7, 2});
    writer.finish();
    return tokenizer->frames().forced_bos.value();
  }

  TemporaryDirectory folder_;
};

// A tokenizer ("spiece.model"), a corpus of it ("corpus.h5"), and models that tests save.
class TrainStageTest : public StageTest {
 protected:
  static constexpr int32_t kExamples = 8;

  TrainStageTest() {
    make_tokenizer("spiece.model", {"the cat sees the dog", "a dog sees a cat", "the bird sings"});
    tokenizer_ = data::load_tokenizer(path("spiece.model"));
    write_corpus("corpus.h5");
  }

  void make_tokenizer(const std::string& name, const std::vector<std::string>& lines) const {
    data::train_tokenizer(lines, {.vocabulary = 40, .exact_size = false}, path(name));
  }

  data::CorpusInfo info(const std::map<std::string, std::string>& provenance = {}) const {
    return {.tokenizer_hash = tokenizer_->hash(), .vocabulary = tokenizer_->vocabulary(), .provenance = provenance};
  }
  void write_corpus(const std::string& name, const std::map<std::string, std::string>& provenance = {},
                    int32_t examples = kExamples) const {
    data::CorpusWriter writer(path(name), info(provenance));
    for (int32_t i = 0; i < examples; ++i) writer.add(std::vector{3 + i, 4 + i}, std::vector{4 + i, 5, 6 + i, 7, 1});
    writer.finish();
  }

  // A T5 of one encoder layer and `layers` decoder layers; vocabulary 0: the tokenizer's.
  void save(const std::string& name, int64_t layers, int64_t width, int64_t vocabulary = 0,
            const std::string& tokenizer = "spiece.model") const {
    save(name,
         model::t5_config({.vocabulary = vocabulary > 0 ? vocabulary : tokenizer_->vocabulary(),
                           .width = width,
                           .heads = 1,
                           .head_width = width,
                           .ff_width = width,
                           .decoder_layers = layers}),
         tokenizer);
  }
  void save(const std::string& name, const model::TransformerConfig& config, const std::string& tokenizer) const {
    model::SaveOptions options{.tokenizer = path(tokenizer)};
    model::save_model(path(name), model::TransformerModel(config, 5), options);
  }

  // Options of train stages: files, `more`, and a training of two steps with `training`.
  std::string files(const std::string& corpus = "corpus.h5") const {
    return option("corpus", corpus) + option("tokenizer", "spiece.model") + option("validation_corpus", corpus);
  }
  toml::table two_steps(const std::string& more, const std::string& training = "",
                        const std::string& corpus = "corpus.h5") const {
    return toml::parse(files(corpus) + more + "\n[training]\nlength = \"2 steps\"\n" + training);
  }

  std::unique_ptr<data::Tokenizer> tokenizer_;
};

}  // namespace draftsmith::recipes
