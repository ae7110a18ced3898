// Generation settings: every key is honoured, known to be harmless, or named as unsupported.
#include "model/files/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "tests/model/files/checkpoint_files.h"
#include "tests/support/errors.h"

namespace draftsmith::model {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class GenerationSettings : public testing::Test {
 protected:
  GenerationSettings() {
    config_.vocabulary = 100;
    config_.eos = {1};
  }

  // Of a directory with this generation_config.json; throws what a loader would.
  GenerationConfig read(const json& settings) {
    write_json(directory_ / "generation_config.json", settings);
    return read_without_file({}, true);
  }

  // With these keys in config.json alone.
  GenerationConfig read_without_file(const json& config_json, bool keep_file = false) {
    if (!keep_file) {
      std::filesystem::remove(directory_ / "generation_config.json");
    }
    Problems problems;
    GenerationConfig generation = read_generation_config(directory_.path(), config_json, config_, problems);
    problems.throw_if_any();
    return generation;
  }

  const TemporaryDirectory directory_;
  TransformerConfig config_;
};

TEST_F(GenerationSettings, EverySupportedKeyIsReadAndWrittenBack) {
  const json settings = {{"pad_token_id", 3},
                         {"eos_token_id", {1, 7}},
                         {"decoder_start_token_id", 4},
                         {"bos_token_id", 5},
                         {"encoder_repetition_penalty", 1.5},
                         {"repetition_penalty", 1.2},
                         {"no_repeat_ngram_size", 3},
                         {"encoder_no_repeat_ngram_size", 4},
                         {"bad_words_ids", {{8}, {9, 10}}},
                         {"min_length", 2},
                         {"min_new_tokens", 1},
                         {"forced_bos_token_id", 11},
                         {"forced_eos_token_id", 1},
                         {"suppress_tokens", {12, 13}},
                         {"begin_suppress_tokens", {14}},
                         {"max_length", 50},
                         {"max_new_tokens", 40},
                         {"do_sample", true},
                         {"temperature", 0.5},
                         {"top_k", 20},
                         {"top_p", 0.75},
                         {"min_p", 0.1},
                         {"stop_strings", {"a", "\n\n"}}};
  const GenerationConfig generation = read(settings);
  EXPECT_THAT(generation.eos_ids, ElementsAre(1, 7));
  EXPECT_THAT(generation.bad_words, ElementsAre(ElementsAre(8), ElementsAre(9, 10)));
  EXPECT_EQ(generation.forced_bos, 11);
  EXPECT_TRUE(generation.has_processors());
  EXPECT_TRUE(generation.unsupported.empty());
  EXPECT_EQ(json(to_json(generation)), settings);
}

TEST_F(GenerationSettings, AbsentOrNullKeysAreTheConfigsOwn) {
  config_.decoder_start = 6;
  const GenerationConfig generation = read({{"eos_token_id", nullptr}, {"temperature", nullptr}});
  EXPECT_THAT(generation.eos_ids, ElementsAre(1));
  EXPECT_EQ(generation.decoder_start, 6);
  EXPECT_FALSE(generation.temperature.has_value());
  EXPECT_FALSE(generation.has_processors());
}

TEST_F(GenerationSettings, WhatIsNotImplementedIsNamed) {
  const GenerationConfig generation = read({{"num_beam_groups", 4},
                                            {"typical_p", 0.9},
                                            {"guidance_scale", 2},
                                            {"sequence_bias", {{{1}, -1.0}}},
                                            {"exponential_decay_length_penalty", {5, 1.1}},
                                            {"a_key_of_tomorrow", true}});
  EXPECT_EQ(generation.unsupported.size(), 6);
  EXPECT_THAT(
      error_of([&] { require_supported(generation, "dir"); }),
      AllOf(HasSubstr("num_beam_groups"), HasSubstr("typical_p"), HasSubstr("guidance_scale"),
            HasSubstr("sequence_bias"), HasSubstr("exponential_decay_length_penalty"), HasSubstr("a_key_of_tomorrow")));
  EXPECT_EQ(to_json(generation)["num_beam_groups"], 4) << "saving a model keeps settings that we do not implement";
}

TEST_F(GenerationSettings, BeamSearchIsReadAndWritten) {
  const GenerationConfig generation = read({{"num_beams", 4}, {"length_penalty", 0.6}, {"early_stopping", true}});
  EXPECT_NO_THROW(require_supported(generation, "dir"));
  EXPECT_EQ(generation.num_beams, 4);
  EXPECT_EQ(generation.length_penalty, 0.6);
  EXPECT_EQ(generation.early_stopping, "true");
  EXPECT_EQ(to_json(generation)["num_beams"], 4);
  EXPECT_EQ(to_json(generation)["early_stopping"], true);
  EXPECT_EQ(to_json(read({{"early_stopping", "never"}}))["early_stopping"], "never");
  EXPECT_FALSE(to_json(read({{"early_stopping", false}})).contains("early_stopping"));
  EXPECT_THAT(error_of([&] {
                read({{"early_stopping", "soon"}, {"num_beams", 0}});
              }),
              AllOf(HasSubstr("early_stopping"), HasSubstr("num_beams")));
}

TEST_F(GenerationSettings, NeutralAndHarmlessValuesAreSupported) {
  const GenerationConfig generation = read({{"num_beams", 1},
                                            {"typical_p", 1.0},
                                            {"guidance_scale", nullptr},
                                            {"stop_strings", json::array()},
                                            {"sequence_bias", json::object()},
                                            {"penalty_alpha", 0},
                                            {"renormalize_logits", false},
                                            {"_from_model_config", true},
                                            {"transformers_version", "5.23.0"},
                                            {"use_cache", true},
                                            {"length_penalty", 2.0}});
  EXPECT_NO_THROW(require_supported(generation, "dir"));
}

TEST_F(GenerationSettings, OldModelsKeepThemInConfigJson) {
  const GenerationConfig generation = read_without_file({{"d_model", 512},
                                                         {"num_beam_groups", 2},
                                                         {"num_beams", 3},
                                                         {"no_repeat_ngram_size", 3},
                                                         {"task_specific_params", {{"num_beams", 4}}}});
  EXPECT_EQ(generation.no_repeat_ngram_size, 3);
  ASSERT_EQ(generation.unsupported.size(), 1);
  EXPECT_EQ(generation.unsupported.front().name, "num_beam_groups");
  EXPECT_EQ(generation.num_beams, 3);
}

TEST_F(GenerationSettings, IdsOutsideTheVocabularyAndBadValuesAreAllReported) {
  EXPECT_THAT(error_of([&] {
                read({{"eos_token_id", 100},
                      {"suppress_tokens", {3, -1}},
                      {"bad_words_ids", {{5}, json::array()}},
                      {"repetition_penalty", 0},
                      {"top_p", 1.5},
                      {"min_p", -0.1},
                      {"stop_strings", {"a", ""}},
                      {"max_length", int64_t{1} << 40},
                      {"max_new_tokens", 0}});
              }),
              AllOf(HasSubstr("eos_token_id"), HasSubstr("suppress_tokens"), HasSubstr("bad_words_ids"),
                    HasSubstr("repetition_penalty"), HasSubstr("top_p"), HasSubstr("max_new_tokens"),
                    HasSubstr("max_length"), HasSubstr("min_p"), HasSubstr("stop_strings")));
}

TEST_F(GenerationSettings, OneStopStringNeedsNoList) {
  EXPECT_THAT(read({{"stop_strings", "end"}}).stop_strings, ElementsAre("end"));
}

}  // namespace
}  // namespace draftsmith::model
