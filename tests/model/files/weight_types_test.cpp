// Models loaded in each type of weights: a token's logits are the same, to the last bit, whatever is processed with it.
#include <cmath>

#include <gtest/gtest.h>

#include "base/device.h"
#include "base/files.h"
#include "model/files/checkpoint.h"
#include "tests/support/batches.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

class WeightTypesOfFamilies : public testing::TestWithParam<at::ScalarType> {
 protected:
  // A state of rows with one source.
  static std::unique_ptr<DecodeState> begin(TransformerModel& model, int64_t rows) {
    if (!model.config().encoder_decoder) return model.begin(rows, 32);
    auto encoded = model.encode(random_batch({7}, 23, 1));
    encoded.hidden = encoded.hidden.repeat({rows, 1, 1});
    encoded.lengths.assign(static_cast<size_t>(rows), 7);
    return model.begin(encoded, 32);
  }

  static void expect_equal_steps(TransformerModel& model) {
    const std::vector<int64_t> text{3, 9, 4, 17, 5, 20, 2, 8, 11, 13, 6};
    const auto together = begin(model, 1);
    const at::Tensor all = model.step(step_input({text}), *together).logits;
    const auto alone = begin(model, 1);
    const auto rows = begin(model, 3);
    for (size_t i = 0; i < text.size(); ++i) {
      const at::Tensor wanted = all.narrow(1, static_cast<int64_t>(i), 1);
      EXPECT_TRUE(at::equal(model.step(step_input({{text[i]}}), *alone).logits, wanted)) << "token " << i;
      const at::Tensor of_three = model.step(step_input({{7}, {text[i]}, {9}}), *rows).logits;
      EXPECT_TRUE(at::equal(of_three.narrow(0, 1, 1), wanted)) << "row, token " << i;
    }
  }
};

TEST_P(WeightTypesOfFamilies, StepsOfOneTokenEqualThoseOfMany) {
  for (TransformerConfig config : tiny_families()) {
    SCOPED_TRACE(config.family);
    if (config.output_scale != 1) config.output_scale = 1 / std::sqrt(static_cast<double>(config.width));
    const TemporaryDirectory folder;
    save_model(folder / "model", *varied_model(config, 5, at::kFloat));
    expect_equal_steps(*load_model(folder / "model", {.dtype = GetParam()}));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, WeightTypesOfFamilies, testing::Values(at::kFloat, at::kBFloat16, at::kChar),
                         [](const auto& instance) { return dtype_name(instance.param); });

}  // namespace
}  // namespace draftsmith::model
