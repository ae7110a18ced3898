// `draftsmith generate`, `inspect`, `verify` and `export` with a drafter that shares its target's encoder, as a user
// runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "model/files/checkpoint.h"
#include "model/kinds/shared_encoder.h"
#include "tests/cli/program.h"
#include "tests/support/models.h"

namespace draftsmith::test {
namespace {

using testing::HasSubstr;

class SharedEncoderProgram : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryDirectory>();
    const model::TransformerConfig config =
        model::t5_config({.vocabulary = 31, .width = 64, .heads = 2, .head_width = 32, .ff_width = 96});
    const auto target = model::varied_model(config, 3, at::kFloat);
    save_model(*folder_ / "target", *target);
    save_model(*folder_ / "other", *model::varied_model(config, 4, at::kFloat));
    const auto same = model::make_shared_encoder_drafter(*target, *target, {model::ProjectionStart::kIdentity});
    model::save_shared_encoder(*folder_ / "same", *same, *folder_ / "target");
    model::TransformerConfig narrow = config;
    narrow.width = 32;
    const auto small = model::make_shared_encoder_drafter(*model::varied_model(narrow, 5, at::kFloat), *target);
    model::save_shared_encoder(*folder_ / "small", *small, *folder_ / "target");
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string path(const std::string& name) { return (*folder_ / name).string(); }

  static ProgramResult generate(const std::vector<std::string>& more, const std::string& model = "target") {
    std::vector<std::string> arguments = {"generate", "--model", path(model), "--ids", "--max-new-tokens", "15"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments, kPrompts);
  }

  static std::unique_ptr<TemporaryDirectory> folder_;
};
std::unique_ptr<TemporaryDirectory> SharedEncoderProgram::folder_;

// Target and drafter each have a type of weights of their own; lossless methods write what the target writes.
TEST_F(SharedEncoderProgram, LosslessMethodsWriteWhatGreedyDecodingWrites) {
  for (const char* type : {"fp32", "bf16", "int8"}) {
    const ProgramResult greedy = generate({"--dtype", type});
    ASSERT_EQ(greedy.exit_code, 0) << greedy.err;
    for (const char* drafter : {"same", "small"}) {
      for (const char* drafter_type : {"fp32", "bf16", "int8"}) {
        for (const char* method : {"assisted", "speculative"}) {
          const ProgramResult fast =
              generate({"--dtype", type, "--drafter", path(drafter), "--drafter-dtype", drafter_type, "--method",
                        method, "--temperature", "0", "--batch-size", "3"});
          EXPECT_EQ(fast.exit_code, 0) << fast.err;
          EXPECT_EQ(fast.out, greedy.out) << drafter << " " << method << " " << type << " " << drafter_type;
        }
      }
    }
  }
  EXPECT_EQ(generate({"--drafter", path("small"), "--method", "bild"}).exit_code, 0);
}

TEST_F(SharedEncoderProgram, AloneAndWithAnotherTargetItIsRefused) {
  const ProgramResult alone = generate({}, "small");
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_EQ(alone.out, "");
  EXPECT_THAT(alone.err, HasSubstr("--model TARGET --drafter DIR"));
  const ProgramResult wrong = generate({"--drafter", path("small"), "--method", "assisted"}, "other");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr(path("other")));
  EXPECT_THAT(wrong.err, HasSubstr(path("target")));
}

TEST_F(SharedEncoderProgram, InspectVerifyAndExportKnowIt) {
  const ProgramResult shown = run_program({"inspect", path("small")});
  EXPECT_THAT(shown.out, HasSubstr("DraftsmithSharedEncoderT5ForConditionalGeneration"));
  EXPECT_THAT(shown.out, HasSubstr("reads its target's states, width 64"));
  EXPECT_THAT(shown.out, HasSubstr("../target, sha256"));
  EXPECT_EQ(run_program({"verify", path("small")}).exit_code, 0);
  const ProgramResult exported = run_program({"export", "--model", path("small"), "--out", path("exported")});
  EXPECT_EQ(exported.exit_code, 2) << exported.out;
  EXPECT_THAT(exported.err, HasSubstr("shares its target's encoder cannot be exported"));
}

}  // namespace
}  // namespace draftsmith::test
