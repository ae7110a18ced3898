// A router as a user meets it: `generate --router`, `inspect`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "model/files/checkpoint.h"
#include "model/files/model_hash.h"
#include "model/kinds/router.h"
#include "tests/cli/program.h"
#include "tests/support/models.h"

namespace draftsmith::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class RouterProgram : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    const model::TransformerConfig config = model::t5_config();
    model::save_model(*folder_ / "target", model::TransformerModel(config, 1));
    model::save_model(*folder_ / "small", model::TransformerModel(config, 2));
    model::RouterConfig shape;
    shape.width = 16;
    shape.vocabulary = 40;
    shape.drafter = "work/small/model";
    shape.drafter_hash = model::model_hash(*folder_ / "small");
    model::save_router(*folder_ / "router", model::Router(shape, 2));
    write_file_atomic(*folder_ / "ids", "5 20 7 1\n6 19 9 1\n");
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string path(const std::string& name) { return (*folder_ / name).string(); }

  static ProgramResult generate(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"generate", "--model",          path("target"), "--input", path("ids"),
                                          "--ids",    "--max-new-tokens", "12",           "--dtype", "fp64"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  }

  static std::unique_ptr<TemporaryDirectory> folder_;
};
std::unique_ptr<TemporaryDirectory> RouterProgram::folder_;

TEST_F(RouterProgram, GeneratesTheSameWithARouter) {
  const std::vector<std::string> routed{"--drafter",     path("small"), "--method", "assisted",
                                        "--window-rule", "router",      "--router", path("router")};
  const ProgramResult result = generate(routed);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, generate({}).out);
  EXPECT_NE(result.out, "");
  EXPECT_THAT(run_program({"inspect", path("router")}).out, HasSubstr("threshold 0.8, max_draft 16"));
}

TEST_F(RouterProgram, ARouterThatIsMissingOrOfAnotherDrafterExitsWith2) {
  const std::vector<std::string> rule{"--method", "assisted", "--window-rule", "router"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), rule.begin(), rule.end());
    return generate(more);
  };
  const ProgramResult none = with({"--drafter", path("small")});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("--router DIR"));
  const ProgramResult other = with({"--drafter", path("target"), "--router", path("router")});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, AllOf(HasSubstr("another drafter"), HasSubstr("work/small/model"), HasSubstr("target")));
  const ProgramResult lookup = with({"--drafter", "lookup", "--router", path("router")});
  EXPECT_EQ(lookup.exit_code, 2);
  EXPECT_THAT(lookup.err, HasSubstr("a drafter that is a model of its own"));
}

}  // namespace
}  // namespace draftsmith::test
