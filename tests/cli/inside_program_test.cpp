// `draftsmith generate` with the methods inside the model, as a user runs them.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "model/files/checkpoint.h"
#include "model/files/model_hash.h"
#include "model/kinds/exits.h"
#include "tests/cli/program.h"
#include "tests/support/models.h"

namespace draftsmith::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class InsideProgram : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    model::TransformerConfig config = model::tiny_llama(4);
    config.initializer_range = 0.7;
    config.tied_head = false;
    for (const char* name : {"plain", "exits", "other"}) {
      const model::TransformerModel model(config, std::string(name) == "other" ? 4 : 3);
      save_model(*folder_ / name, model);
      if (std::string(name) == "plain") continue;
      const at::NoGradGuard no_gradients;
      model::Exits exits({.exits = {{.layer = 2, .head = model::ExitHead::kFull, .own_norm = true}}}, model, 5);
      exits.parameters().at("exit.2.head.weight").mul_(-1);
      exits.bind(name, model::model_hash(*folder_ / name));
      model::save_exits(model::exits_directory(*folder_ / name), exits);
    }
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string path(const std::string& name) { return (*folder_ / name).string(); }

  static ProgramResult generate(const std::vector<std::string>& more, const std::string& model = "plain") {
    std::vector<std::string> arguments = {"generate",         "--model", path(model), "--ids",
                                          "--max-new-tokens", "15",      "--dtype",   "fp64"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments, kPrompts);
  }

  static nlohmann::json first_stats(const ProgramResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out.substr(0, result.out.find('\n'))).at("stats");
  }

  static std::unique_ptr<TemporaryDirectory> folder_;
};
std::unique_ptr<TemporaryDirectory> InsideProgram::folder_;

TEST_F(InsideProgram, AVerifiedExitWritesWhatGreedyDecodingWrites) {
  const ProgramResult greedy = generate({});
  ASSERT_EQ(greedy.exit_code, 0) << greedy.err;
  for (const char* model : {"plain", "exits"}) {
    for (const char* exit : {"exit:1", "exit:2", "exit:4"}) {
      const ProgramResult fast = generate({"--drafter", exit, "--method", "assisted"}, model);
      EXPECT_EQ(fast.out, greedy.out) << fast.err;
      EXPECT_EQ(fast.err, "");
    }
  }
  const ProgramResult all = generate({"--method", "early-exit", "--exit-layer", "4", "--fallback", "0.4"});
  EXPECT_EQ(all.out, greedy.out) << all.err;
}

TEST_F(InsideProgram, EarlyExitDraftsWithTheModelsOwnExits) {
  const std::vector<std::string> bild = {"--method",   "early-exit", "--fallback",   "0",
                                         "--rollback", "inf",        "--verify-end", "--json"};
  std::vector<std::string> second = bild;
  second.insert(second.end(), {"--exit-layer", "2"});
  const auto stats = first_stats(generate(bild, "exits"));
  EXPECT_GT(stats.at("drafted"), 0);
  EXPECT_EQ(stats.at("layer_runs").get<int64_t>() % 4, 0);
  const auto ids = [](const ProgramResult& result) {
    return nlohmann::json::parse(result.out.substr(0, result.out.find('\n'))).at("ids");
  };
  const ProgramResult own = generate(second, "exits");
  EXPECT_EQ(ids(generate(bild, "exits")), ids(own));  // its first exit is the default
  EXPECT_NE(ids(generate(second)), ids(own));         // without exits layer 2 is read by the model's head
  std::vector<std::string> given = second;
  given.insert(given.end(), {"--exits", path("exits") + "/draftsmith/exits"});
  EXPECT_EQ(ids(generate(given)), ids(own));  // "plain" is the same model
}

TEST_F(InsideProgram, CalmAndPpdDecodeWithoutADrafter) {
  const ProgramResult greedy = generate({});
  const ProgramResult full = generate({"--method", "calm", "--exit-threshold", "1", "--exit-decay", "0"});
  EXPECT_EQ(full.out, greedy.out) << full.err;
  const auto calm = first_stats(generate({"--method", "calm", "--exit-threshold", "0.5", "--json"}));
  EXPECT_EQ(calm.at("exits_by_layer").size(), 4U);
  const ProgramResult ppd = generate({"--method", "ppd", "--candidates", "5"});
  EXPECT_EQ(ppd.out, greedy.out) << ppd.err;
  EXPECT_EQ(ppd.err, "");
  EXPECT_GT(first_stats(generate({"--method", "ppd", "--json"})).at("early_predictions"), 0);
  // One token, before which nothing is predicted, is told by the same keys.
  const auto one = run_program(
      {"generate", "--model", path("plain"), "--ids", "--max-new-tokens", "1", "--method", "ppd", "--json"}, "7\n");
  EXPECT_EQ(first_stats(one).at("early_predictions"), 0);
}

TEST_F(InsideProgram, WhatDoesNotFitIsSaidBeforeAnyWork) {
  const auto error = [](const ProgramResult& result) {
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_THAT(error(generate({"--method", "early-exit", "--exit-layer", "5"})),
              AllOf(HasSubstr("from 1 to 4"), HasSubstr("exit layer 5"), HasSubstr(path("plain"))));
  EXPECT_THAT(error(generate({"--method", "assisted", "--drafter", "exit:5"})), HasSubstr("from 1 to 4"));
  EXPECT_THAT(error(generate({"--method", "assisted", "--drafter", "exit:x"})), HasSubstr("exit:N"));
  EXPECT_THAT(error(generate({"--method", "calm", "--exit-threshold", "1.5"})), HasSubstr("exit-threshold"));
  EXPECT_THAT(error(generate({"--method", "ppd", "--candidates", "32"})), HasSubstr("at most 31"));
  EXPECT_THAT(error(generate({"--method", "ppd", "--early-layer", "1"})), HasSubstr("a layer from 2 to 3"));
  EXPECT_THAT(error(generate({"--method", "early-exit", "--exits", path("nothing")})), HasSubstr(path("nothing")));
  const ProgramResult other = generate({"--method", "early-exit", "--exits", path("other") + "/draftsmith/exits"});
  EXPECT_THAT(error(other), AllOf(HasSubstr(model::model_hash(path("plain")).substr(0, 12)),
                                  HasSubstr(model::model_hash(path("other")).substr(0, 12))));
}

TEST_F(InsideProgram, OptionsWithoutEffectAreWarnedOf) {
  const ProgramResult ignored = generate({"--method", "early-exit", "--drafter", path("other")});
  EXPECT_EQ(ignored.exit_code, 0);
  EXPECT_THAT(ignored.err, HasSubstr("--drafter has no effect on method early-exit"));
  EXPECT_THAT(generate({"--exit-layer", "2"}).err, HasSubstr("--exit-layer has no effect on method greedy"));
  EXPECT_THAT(generate({"--exits", path("exits")}).err, HasSubstr("--exits has no effect on method greedy"));
  EXPECT_THAT(generate({"--method", "calm", "--candidates", "2"}).err, HasSubstr("--candidates has no effect"));
}

TEST_F(InsideProgram, HelpTeachesTheMethods) {
  const ProgramResult help = run_program({"generate", "--help"});
  for (const char* word : {"--method early-exit", "exit:N", "--exit-threshold", "--early-layer", "--exits"}) {
    EXPECT_THAT(help.out, HasSubstr(word));
  }
}

}  // namespace
}  // namespace draftsmith::test
