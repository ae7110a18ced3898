// inspect and verify on directories of models of our own kinds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "model/models/block_models.h"
#include "model/models/deep_tandem.h"
#include "model/models/tandem.h"
#include "recipes/inspection.h"
#include "tests/support/models.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

class ModelInspection : public testing::Test {
 protected:
  ModelInspection() { model::save_model(root_ / "large", large_); }

  TemporaryDirectory root_;
  model::TransformerModel large_{model::tiny_bloom(4), 1};
  model::TransformerModel small_{model::tiny_bloom(2), 2};
};

TEST_F(ModelInspection, TandemSecondariesAreShownAndVerifiedWithTheirPrimary) {
  const auto secondary = model::make_tandem_secondary(small_, large_);
  model::save_tandem(root_ / "tandem", *secondary, {.primary_directory = root_ / "large"});
  EXPECT_THAT(inspect(root_ / "tandem"),
              AllOf(HasSubstr("DraftsmithTandemBloomForCausalLM"), HasSubstr("reads layers 2, 4 of a primary of 4"),
                    HasSubstr("../large"), HasSubstr("2 tokens")));
  EXPECT_THAT(verify(root_ / "tandem"), IsEmpty());
  fs::remove_all(root_ / "large");
  EXPECT_THAT(to_string(verify(root_ / "tandem").at(0)), HasSubstr("not there"));
  model::save_model(root_ / "large", model::TransformerModel(model::tiny_bloom(4), 9));
  EXPECT_THAT(to_string(verify(root_ / "tandem").at(0)), HasSubstr("has changed"));
}

TEST_F(ModelInspection, BlockModelsAreShownAndVerified) {
  const model::TransformerModel blocks(model::block_prediction_config(model::tiny_bloom(2), 8), 3);
  model::save_model(root_ / "blocks", blocks);
  EXPECT_THAT(inspect(root_ / "blocks"), HasSubstr("blocks of 8 tokens"));
  EXPECT_THAT(verify(root_ / "blocks"), IsEmpty());
  model::save_deep_tandem(root_ / "deep", model::DeepTandemModel({model::tiny_bloom(4), model::tiny_bloom(2), 3}, 1));
  EXPECT_THAT(inspect(root_ / "deep"),
              AllOf(HasSubstr("deep Tandem"), HasSubstr("large part"), HasSubstr("of 3 tokens")));
  EXPECT_THAT(verify(root_ / "deep"), IsEmpty());
  fs::remove(root_ / "deep" / "small" / "model.safetensors");
  EXPECT_THAT(verify(root_ / "deep").size(), 1);
}

}  // namespace
}  // namespace draftsmith::recipes
