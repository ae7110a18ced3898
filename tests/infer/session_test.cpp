#include "infer/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "model/files/checkpoint.h"
#include "tests/support/captured_log.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"

namespace draftsmith::infer {
namespace {

using ::testing::HasSubstr;

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    model::save_model(root_ / "target", *model::varied_model(model::tiny_mt5(), 3, at::kFloat));
    model::save_model(root_ / "small", *model::varied_model(model::tiny_mt5(), 4, at::kFloat));
  }

  Session session(const std::string& drafter) const {
    return Session({.target = (root_ / "target").string(), .drafter = drafter});
  }

  std::vector<int64_t> ids_by(Session& session, const std::string& method) const {
    DecodeOptions options;
    options.method = method;
    options.max_new_tokens = 12;
    const std::vector<int64_t> source = {5, 6, 7, 1};
    return session.generator(options).generate({&source, 1}).at(0).ids;
  }

  const TemporaryDirectory folder_;
  const std::filesystem::path root_ = folder_.path();
};

TEST_F(SessionTest, DecodesByOneMethodAfterAnother) {
  Session with_drafter = session((root_ / "small").string());
  const auto plain = ids_by(with_drafter, "greedy");
  EXPECT_EQ(plain.size(), 12);
  EXPECT_EQ(ids_by(with_drafter, "assisted"), plain);
  EXPECT_EQ(ids_by(with_drafter, "ppd"), plain);
  EXPECT_EQ(ids_by(with_drafter, "greedy"), plain);
}

TEST_F(SessionTest, ATargetMayDraftForItself) {
  Session itself = session((root_ / "target").string());
  EXPECT_EQ(ids_by(itself, "assisted"), ids_by(itself, "greedy"));
}

TEST_F(SessionTest, LoadsADrafterWhenAMethodAsksForIt) {
  Session absent = session((root_ / "nowhere").string());
  EXPECT_EQ(ids_by(absent, "greedy").size(), 12);
  EXPECT_THAT(error_of([&] { ids_by(absent, "assisted"); }), HasSubstr("nowhere"));
  EXPECT_EQ(ids_by(absent, "greedy").size(), 12);
}

TEST_F(SessionTest, NamesOptionsAsItsUserDoes) {
  const CapturedLog log;
  Session flags({.target = (root_ / "target").string(), .drafter = "", .option_prefix = "--"});
  DecodeOptions options;
  options.exits = root_ / "exits";
  flags.generator(options);
  EXPECT_THAT(log.text(), HasSubstr("--exits has no effect on method greedy"));
}

}  // namespace
}  // namespace draftsmith::infer
