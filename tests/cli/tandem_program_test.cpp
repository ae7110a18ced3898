// `draftsmith generate` with a Tandem secondary, as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "model/files/checkpoint.h"
#include "model/kinds/tandem.h"
#include "tests/cli/program.h"
#include "tests/support/models.h"

namespace draftsmith::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class TandemProgram : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    model::TransformerConfig config = model::tiny_llama(2);
    config.initializer_range = 0.7;
    config.tied_head = false;
    const model::TransformerModel primary(config, 3);
    save_model(*folder_ / "primary", primary);
    save_model(*folder_ / "other", model::TransformerModel(config, 4));
    const auto same = model::make_tandem_secondary(
        primary, primary, {.layer_map = {0, 1}, .projections = model::ProjectionStart::kIdentity});
    model::save_tandem(*folder_ / "same", *same, {.primary_directory = *folder_ / "primary"});
    const auto random = model::make_tandem_secondary(model::TransformerModel(model::tiny_llama(1), 5), primary);
    model::save_tandem(*folder_ / "random", *random, {.primary_directory = *folder_ / "primary"});
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string path(const std::string& name) { return (*folder_ / name).string(); }

  static ProgramResult generate(const std::vector<std::string>& more, const std::string& model = "primary") {
    std::vector<std::string> arguments = {"generate",         "--model", path(model), "--ids",
                                          "--max-new-tokens", "15",      "--dtype",   "fp64"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments, kPrompts);
  }

  static std::unique_ptr<TemporaryDirectory> folder_;
};
std::unique_ptr<TemporaryDirectory> TandemProgram::folder_;

TEST_F(TandemProgram, SpeedWritesWhatGreedyDecodingWrites) {
  const ProgramResult greedy = generate({});
  ASSERT_EQ(greedy.exit_code, 0) << greedy.err;
  for (const char* secondary : {"same", "random"}) {
    const ProgramResult fast = generate({"--drafter", path(secondary), "--method", "tandem-speed", "--window", "3"});
    EXPECT_EQ(fast.exit_code, 0) << fast.err;
    EXPECT_EQ(fast.out, greedy.out) << secondary;
  }
}

TEST_F(TandemProgram, StandaloneWritesTheSecondarysTokens) {
  const ProgramResult greedy = generate({});
  for (const char* free_token : {"--free-token=true", "--free-token=false"}) {
    const ProgramResult same = generate({"--drafter", path("same"), "--method", "tandem", "--window", "2", free_token});
    EXPECT_EQ(same.out, greedy.out) << same.err;
    EXPECT_EQ(same.err, "");
  }
  const ProgramResult random = generate({"--drafter", path("random"), "--method", "tandem", "--json"});
  ASSERT_EQ(random.exit_code, 0) << random.err;
  EXPECT_NE(generate({"--json"}).out, random.out);
  const auto stats = nlohmann::json::parse(random.out.substr(0, random.out.find('\n'))).at("stats");
  EXPECT_EQ(stats.at("accepted"), stats.at("drafted"));
  EXPECT_EQ(stats.at("draft_runs"), stats.at("drafted"));
  EXPECT_GT(stats.at("target_runs"), 0);
  EXPECT_LT(stats.at("target_runs"), stats.at("drafted"));
}

TEST_F(TandemProgram, AnotherPrimaryIsAnErrorThatNamesBoth) {
  const ProgramResult wrong = generate({"--drafter", path("same"), "--method", "tandem-speed"}, "other");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_EQ(wrong.out, "");
  EXPECT_THAT(wrong.err, HasSubstr(path("other")));
  EXPECT_THAT(wrong.err, HasSubstr(path("primary")));
}

TEST_F(TandemProgram, SecondariesAloneAndOrdinaryDraftersAreRefused) {
  const ProgramResult alone = generate({}, "same");
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("Tandem"));
  const ProgramResult ordinary = generate({"--drafter", path("other"), "--method", "tandem"});
  EXPECT_EQ(ordinary.exit_code, 2);
  EXPECT_THAT(ordinary.err, HasSubstr("drafter is a Tandem secondary"));
  const ProgramResult unused = generate({"--drafter", path("same"), "--method", "tandem-speed", "--free-token=false"});
  EXPECT_THAT(unused.err, HasSubstr("--free-token has no effect"));
  const ProgramResult silent =
      generate({"--drafter", path("same"), "--method", "tandem", "--free-token=false", "--window-rule", "fallback"});
  EXPECT_EQ(silent.exit_code, 2);
  EXPECT_THAT(silent.err, HasSubstr("may end before its first token"));
}

TEST_F(TandemProgram, HelpTeachesTheMethods) {
  const ProgramResult help = run_program({"generate", "--help"});
  EXPECT_THAT(help.out, HasSubstr("--method tandem-speed"));
  EXPECT_THAT(help.out, HasSubstr("--free-token"));
}

}  // namespace
}  // namespace draftsmith::test
