// How drafters are named, and what each kind says of itself once it is loaded.
#include "infer/drafters/registry.h"

#include <gmock/gmock.h>

#include "infer/drafters/model_drafter.h"
#include "model/files/model_directory.h"
#include "tests/support/early_exit_fixtures.h"
#include "tests/support/errors.h"
#include "tests/support/oracle_fixtures.h"
#include "tests/support/tandem_pairs.h"

namespace draftsmith::infer::testing {
namespace {

TEST(DrafterSpec, IsReadAsItIsWritten) {
  EXPECT_EQ(parse_drafter("some/dir").kind, DrafterKind::kModel);
  EXPECT_EQ(parse_drafter("ngram:a/b.h5").path.string(), "a/b.h5");
  EXPECT_EQ(to_text(parse_drafter("lookup")), "lookup:4");
  EXPECT_EQ(parse_drafter("exit:3").number, 3);
  for (const char* text : {"some/dir", "ngram:a/b.h5", "ngram", "exit", "lookups", "lookup:3", "exit:3"}) {
    EXPECT_EQ(to_text(parse_drafter(text)), text);
  }
}

TEST(DrafterSpec, OtherTextsAreErrorsThatNameTheForm) {
  for (const char* wrong : {"ngram:", "lookup:", "lookup:0", "lookup:17", "lookup:2x", "lookup:-1"}) {
    EXPECT_THAT(error_of([&] { parse_drafter(wrong); }), HasSubstr(wrong)) << wrong;
  }
  for (const char* wrong : {"exit:0", "exit:-1", "exit:", "exit:two", "exit:2x"}) {
    EXPECT_THAT(error_of([&] { parse_drafter(wrong); }), AllOf(HasSubstr("exit:N"), HasSubstr(wrong)));
  }
}

TEST(DrafterSpec, ASuitesDraftersHaveTheSameTexts) {
  EXPECT_EQ(to_text(DrafterOptions{.name = "a", .model = "dir"}.spec()), "dir");
  EXPECT_EQ(to_text(DrafterOptions{.name = "a", .ngram = "n.h5"}.spec()), "ngram:n.h5");
  EXPECT_EQ(to_text(DrafterOptions{.name = "a", .lookup = true, .longest = 3}.spec()), "lookup:3");
  EXPECT_EQ(to_text(DrafterOptions{.name = "a", .exit = 2}.spec()), "exit:2");
  EXPECT_EQ((DrafterOptions{.name = "a", .tandem = "pair"}.spec().kind), DrafterKind::kTandem);
}

TEST(DrafterOptionsExtras, AreForModelsAndForLookUp) {
  const auto problems_of = [](const DrafterOptions& drafter) { return option_problems(drafter, "drafter"); };
  EXPECT_EQ(problems_of({.name = "a", .model = "dir", .dtype = "int8"}), "");
  EXPECT_EQ(problems_of({.name = "a", .tandem = "dir", .dtype = "bf16"}), "");
  for (const DrafterOptions& drafter : {DrafterOptions{.name = "a", .ngram = "n.h5", .dtype = "int8"},
                                        {.name = "a", .exit = 2, .dtype = "fp32"},
                                        {.name = "a", .lookup = true, .dtype = "int8"}}) {
    EXPECT_THAT(problems_of(drafter), AllOf(HasSubstr("drafter.dtype"), HasSubstr("no number type")));
  }
  EXPECT_EQ(problems_of({.name = "a", .lookup = true, .longest = 2}), "");
  EXPECT_THAT(problems_of({.name = "a", .model = "dir", .longest = 2}), HasSubstr("looks nothing up"));
}

TEST(LoadedDrafter, MakesTheDrafterOfItsName) {
  const auto model = exit_model({});
  const DraftTarget target{*model};
  EXPECT_EQ(load_drafter(parse_drafter("lookup"), {}, {})->make(target)->traits().name, "lookup");
  EXPECT_EQ(load_drafter(parse_drafter("exit:2"), {}, {})->make(target)->traits().name, "early-exit");
  EXPECT_EQ(as_drafter(*model)->make(target)->traits().name, "model");
  const TandemPair pair = identity_pair(Kind::kEncoderDecoder);
  const GenerationModels models = pair.models();
  EXPECT_EQ(models.drafter->make(models.draft_target())->traits().name, "tandem");
  EXPECT_TRUE(models.drafter->reads_target());
  EXPECT_EQ(load_drafter(parse_drafter("exit:2"), {}, {})->inside_target(), 2);
  OracleModel oracle(oracle_info(4), random_oracle(4, 1));
  EXPECT_EQ(as_drafter(oracle)->transformer(), nullptr) << "an oracle has no embeddings";
}

}  // namespace
}  // namespace draftsmith::infer::testing
