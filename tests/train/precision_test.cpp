// The type of products in training, and how far gradients of bf16 are from those of fp32.
#include <gtest/gtest.h>

#include "base/bf16_product.h"
#include "base/files.h"
#include "model/cpu/instructions.h"
#include "tests/support/models.h"
#include "tests/train/fixtures.h"
#include "tests/train/trainable/exit_training_fixtures.h"
#include "tests/train/trainable/tandem_training_fixtures.h"
#include "train/training_step.h"

namespace draftsmith::train {
namespace {

TEST(Precision, AutoIsBf16WhereCpusHaveFastProductsOfIt) {
  EXPECT_FALSE(trains_in_bf16("fp32", at::kCPU));
  EXPECT_TRUE(trains_in_bf16("bf16", at::kCPU));
  EXPECT_TRUE(trains_in_bf16("bf16", at::kCUDA));
  EXPECT_FALSE(trains_in_bf16("auto", at::kCUDA));
  // Where the variable DRAFTSMITH_CPU forbids an instruction, training leaves it alone, too.
  const auto needed = has_bf16_tiles() ? model::Instructions::kAmx : model::Instructions::kAvx512;
  EXPECT_EQ(trains_in_bf16("auto", at::kCPU), has_bf16_product() && model::cpu_instructions() >= needed);
}

TEST(Precision, GradientsOfBf16PointWhereThoseOfFp32Do) {
  const TemporaryDirectory folder;
  write_copy_corpus(folder / "corpus.h5", 8, 3);
  const data::Corpus corpus(folder / "corpus.h5");
  const auto objective = make_objective({});
  for (model::TransformerConfig config : model::tiny_families()) {
    config.vocabulary = kTestVocabulary;
    SCOPED_TRACE(config.family);
    const auto model = model::varied_model(config, 3, at::kFloat);
    PlainTrainable trainable(*model);
    require_gradients(trainable, true);
    std::map<std::string, at::Tensor> found[2];
    for (const bool autocast : {false, true}) {
      for (const auto& [name, value] : trainable.parameters()) value.mutable_grad().reset();
      accumulate_gradients(trainable, *objective, corpus, {{0, 1, 2, 3}, {4, 5, 6, 7}}, {.autocast = autocast});
      for (const auto& [name, value] : trainable.parameters()) {
        if (value.grad().defined()) found[autocast ? 1 : 0][name] = value.grad().clone().flatten();
      }
    }
    ASSERT_EQ(found[0].size(), found[1].size());
    for (const auto& [name, exact] : found[0]) {
      const at::Tensor rounded = found[1].at(name);
      const double apart = (rounded - exact).norm().item<double>(), length = exact.norm().item<double>();
      // A key's bias shifts all scores of a query alike: its gradient is rounding.
      EXPECT_LT(apart, 0.1 * length + 0.02) << name;
    }
  }
}

}  // namespace
}  // namespace draftsmith::train
