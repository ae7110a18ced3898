// What the methods inside the model take of their options, and what is wrong with them, said before any work.
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "infer/decode_options.h"
#include "infer/self_drafting/methods.h"
#include "model/models/exits.h"
#include "tests/support/early_exit_fixtures.h"
#include "tests/support/errors.h"
#include "tests/support/oracle_fixtures.h"

namespace draftsmith::infer::testing {
namespace {

class InsideMethods : public ::testing::Test {
 protected:
  std::string problem(const DecodeOptions& options, int64_t drafter = 0, const model::Exits* exits = nullptr) {
    GenerationModels models = exit_models(*model, drafter);
    models.exits = exits;
    return error_of([&] { Generator(models, options); });
  }

  std::unique_ptr<model::TransformerModel> model = exit_model({});
};

struct WrongOption {
  const char* method;
  std::function<void(DecodeOptions&)> change;
  const char* problem;
};

TEST_F(InsideMethods, OptionsOutOfRangeAreErrors) {
  const std::vector<WrongOption> all = {
      {"early-exit", [](auto& options) { options.exit_layer = 5; }, "exit layer 5"},
      {"early-exit", [](auto& options) { options.exit_layer = 5; }, "from 1 to 4"},
      {"early-exit", [](auto& options) { options.exit_layer = 0; }, "exit_layer"},
      {"early-exit", [](auto& options) { options.exit_layer = 4; }, "no error"},
      {"early-exit", [](auto& options) { options.window_rule = "router"; }, "a drafter that is a model of its own"},
      {"calm", [](auto& options) { options.exit_threshold = 1.2; }, "exit_threshold"},
      {"calm", [](auto& options) { options.exit_threshold = -0.1; }, "exit_threshold"},
      {"calm", [](auto& options) { options.exit_decay = -1; }, "exit_decay"},
      {"calm", [](auto& options) { options.exit_measure = "margins"; }, "did you mean 'margin'?"},
      {"calm", [](auto& options) { options.window_rule = "fixed"; }, "drafts nothing"},
      {"ppd", [](auto& options) { options.acceptance = "exact"; }, "drafts nothing"},
      {"ppd", [](auto& options) { options.candidates = 0; }, "candidates"},
      {"ppd", [](auto& options) { options.candidates = 24; }, "no error"},
      {"ppd", [](auto& options) { options.candidates = 25; }, "at most 24"},
      {"ppd", [](auto& options) { options.early_layer = 1; }, "a layer from 2 to 3"},
      {"ppd", [](auto& options) { options.early_layer = 4; }, "a layer from 2 to 3"},
      {"ppd", [](auto& options) { options.early_layer = 3; }, "no error"}};
  for (const WrongOption& wrong : all) {
    DecodeOptions options = exit_options(wrong.method);
    wrong.change(options);
    EXPECT_THAT(problem(options), HasSubstr(wrong.problem)) << wrong.method;
  }
  EXPECT_THAT(problem(exit_options("assisted"), 6), AllOf(HasSubstr("from 1 to 4"), HasSubstr("exit layer 6")));
  const auto single = exit_model({.layers = 1});
  EXPECT_THAT(error_of([&] { Generator(exit_models(*single), exit_options("ppd")); }),
              HasSubstr("at least 2 decoder layers"));
}

TEST_F(InsideMethods, OnlyTransformersHaveLayers) {
  OracleModel oracle(oracle_info(6), random_oracle(6, 1));
  GenerationModels models{.target = &oracle};
  for (const char* method : {"early-exit", "calm", "ppd"}) {
    EXPECT_THAT(error_of([&] { Generator(models, exit_options(method)); }), HasSubstr("a transformer")) << method;
  }
}

TEST_F(InsideMethods, ExitsAskedForByNameHaveOneAtTheLayerThatIsRead) {
  const model::Exits exits({.exits = {{.layer = 3}}}, *model, 1);
  DecodeOptions options = exit_options("ppd");
  options.early_layer = 2;
  EXPECT_EQ(problem(options, 0, &exits), "no error");  // the model's own exits are taken where there are any
  options.exits = "heads";
  EXPECT_THAT(problem(options, 0, &exits), AllOf(HasSubstr("a layer of heads: 3"), HasSubstr("layer 2")));
  options.early_layer = 3;
  EXPECT_EQ(problem(options, 0, &exits), "no error");
  options = exit_options("early-exit");
  options.exits = "heads";
  EXPECT_EQ(problem(options, 0, &exits), "no error");  // its first exit
  options.exit_layer = 1;
  EXPECT_THAT(problem(options, 0, &exits), HasSubstr("there is no exit at the layer"));
  options.exit_layer = 4;
  EXPECT_EQ(problem(options, 0, &exits), "no error");  // all layers: the model's own head
  options = exit_options("assisted");
  options.exits = "heads";
  EXPECT_THAT(problem(options, 2, &exits), HasSubstr("layer 2"));
}

TEST_F(InsideMethods, DefaultsComeFromTheExits) {
  EXPECT_EQ(exit_layer_of(exit_options("early-exit"), nullptr), 1);
  const model::Exits exits({.exits = {{.layer = 1}, {.layer = 3}}}, *model, 1);
  const model::Exits late({.exits = {{.layer = 3}, {.layer = 4}}}, *model, 1);
  EXPECT_EQ(exit_layer_of(exit_options("early-exit"), &exits), 1);
  EXPECT_EQ(exit_layer_of(exit_options("early-exit"), &late), 3);
  GenerationModels models = exit_models(*model);
  DecodeOptions options = exit_options("ppd");
  EXPECT_EQ(ppd_settings(models, options).early_layer, 2);
  models.exits = &exits;
  EXPECT_EQ(ppd_settings(models, options).early_layer, 3);
  options.early_layer = 2;
  EXPECT_EQ(ppd_settings(models, options).early_layer, 2);
}

TEST_F(InsideMethods, OptionsOfOtherMethodsAreKnownToHaveNoEffect) {
  const auto used = [](const std::string& method, const std::string& name) {
    for (const Field& field : DecodeOptions::fields().all()) {
      if (field.name == name) return exit_options(method).reads(field);
    }
    ADD_FAILURE() << name;
    return false;
  };
  EXPECT_TRUE(used("early-exit", "exit_layer") && used("early-exit", "fallback") && used("early-exit", "rollback"));
  EXPECT_TRUE(used("calm", "exit_threshold") && used("ppd", "candidates"));
  EXPECT_FALSE(used("assisted", "exit_layer") || used("ppd", "exit_threshold") || used("calm", "window"));
}

}  // namespace
}  // namespace draftsmith::infer::testing
