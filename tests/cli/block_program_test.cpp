// `draftsmith generate` with models of block prediction and deep Tandems, as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "model/kinds/block_prediction.h"
#include "model/kinds/deep_tandem.h"
#include "tests/cli/program.h"
#include "tests/support/models.h"

namespace draftsmith::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class BlockProgram : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    model::TransformerConfig config = model::tiny_llama(2);
    config.initializer_range = 0.7;
    model::save_model(*folder_ / "plain", model::TransformerModel(config, 3));
    model::save_model(*folder_ / "blocks", model::TransformerModel(model::block_prediction_config(config, 4), 4));
    model::save_deep_tandem(*folder_ / "deep",
                            model::DeepTandemModel({.large = config, .small = config, .block = 2}, 5));
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static ProgramResult generate(const std::string& model, const std::vector<std::string>& more,
                                const std::string& prompts = "5 6 7 8\n9 8 7 6 5\n") {
    std::vector<std::string> arguments = {
        "generate", "--model", (*folder_ / model).string(), "--ids", "--max-new-tokens", "12", "--dtype", "fp64"};
    for (const std::string& word : more)
      arguments.push_back(word.starts_with("@") ? (*folder_ / word.substr(1)).string() : word);
    return run_program(arguments, prompts);
  }

  static std::unique_ptr<TemporaryDirectory> folder_;
};
std::unique_ptr<TemporaryDirectory> BlockProgram::folder_;

TEST_F(BlockProgram, BothDecodeAloneDraftAndAreDraftedFor) {
  for (const char* model : {"blocks", "deep"}) {
    const ProgramResult alone = generate(model, {});
    EXPECT_EQ(alone.exit_code, 0) << alone.err;
    EXPECT_EQ(std::ranges::count(alone.out, '\n'), 2);
    EXPECT_EQ(generate(model, {"--batch-size", "2"}).out, alone.out) << model;
    EXPECT_EQ(generate(model, {"--method", "assisted", "--drafter", "@plain"}).out, alone.out) << model;
    const std::string drafter = "@" + std::string(model);
    EXPECT_EQ(generate("plain", {"--method", "assisted", "--drafter", drafter}).out, generate("plain", {}).out)
        << model;
    EXPECT_EQ(generate(model, {"--method", "sample", "--num-samples", "3"}).exit_code, 0) << model;
  }
}

TEST_F(BlockProgram, WhatTheyCannotDoIsRefused) {
  const ProgramResult shorter = generate("blocks", {}, "5 6 7 8\n5 6\n");
  EXPECT_EQ(shorter.exit_code, 2);
  EXPECT_THAT(shorter.err, AllOf(HasSubstr("input 2"), HasSubstr("at least 4 tokens"), HasSubstr("2 tokens")));
  const ProgramResult inside = generate("deep", {"--method", "ppd"});
  EXPECT_EQ(inside.exit_code, 2);
  EXPECT_THAT(inside.err, HasSubstr("a transformer"));
}

}  // namespace
}  // namespace draftsmith::test
