// A folder with a tokenizer and small models, in which train stages are run and refused.
#pragma once

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

class TrainStageTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<std::string> lines = {"the cat sees the dog", "a dog sees a cat", "the bird sings"};
    data::train_tokenizer(lines, {.vocabulary = 40, .exact_size = false}, path("spiece.model"));
    tokenizer_ = data::load_tokenizer(path("spiece.model"));
    write_corpus("corpus.h5", {});
  }

  void write_corpus(const std::string& name, const std::map<std::string, std::string>& provenance) const {
    data::CorpusWriter writer(
        path(name),
        {.tokenizer_hash = tokenizer_->hash(), .vocabulary = tokenizer_->vocabulary(), .provenance = provenance});
    for (int32_t i = 0; i < 8; ++i) writer.add(std::vector{3 + i, 4 + i}, std::vector{4 + i, 5, 6 + i, 7, 1});
    writer.finish();
  }

  // A T5 of one encoder layer and `layers` decoder layers; vocabulary 0: the tokenizer's.
  void save(const std::string& name, int64_t layers, int64_t width, int64_t vocabulary = 0) const {
    const model::TransformerConfig config =
        model::t5_config({.vocabulary = vocabulary > 0 ? vocabulary : tokenizer_->vocabulary(),
                          .width = width,
                          .heads = 1,
                          .head_width = width,
                          .ff_width = width,
                          .decoder_layers = layers});
    model::SaveOptions options;
    options.tokenizer = path("spiece.model");
    model::save_model(path(name), model::TransformerModel(config, 5), options);
  }

  std::filesystem::path path(const std::string& name) const { return folder_ / name; }
  std::string option(const std::string& key, const std::string& file) const {
    return key + " = \"" + path(file).string() + "\"\n";
  }

  void run(const std::string& kind, const toml::table& table, const std::string& directory) const {
    std::filesystem::create_directories(path(directory));
    const Execution execution{.device = "cpu", .threads = 1, .quiet = true};
    stage_kinds().find(kind)->run(table, {.directory = path(directory), .identity = "job", .execution = execution});
  }
  void run(const toml::table& table, const std::string& directory) const { run("train", table, directory); }

  std::string stage_error(const toml::table& table, const std::string& kind = "train") const {
    return error_of([&] { run(kind, table, "failing"); });
  }

  // What `draftsmith validate` says.
  std::string problems_of(const toml::table& table, const std::string& kind = "train") const {
    Problems problems;
    stage_kinds().find(kind)->check(table, "t", problems);
    try {
      problems.throw_if_any();
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }

  TemporaryDirectory folder_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
};

}  // namespace draftsmith::recipes
