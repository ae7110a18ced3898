// Models that are loaded for decoding: packed as they are read, over the mapped files, without their plain weights.
// A token's logits are the same, to the last bit, whatever is processed with it.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "base/device.h"
#include "base/files.h"
#include "model/families/family.h"
#include "model/files/checkpoint.h"
#include "tests/support/batches.h"
#include "tests/support/errors.h"
#include "tests/support/families.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {
namespace {

struct Stored {
  std::string family;
  bool tied;
  at::ScalarType dtype;
};

class DecodingLoad : public testing::TestWithParam<Stored> {
 protected:
  DecodingLoad() {
    TransformerConfig config = GetParam().family == "t5" ? tiny_t5() : gpt2_config(tiny_sizes(3));
    config.tied_head = GetParam().tied;
    if (config.encoder_decoder) config.output_scale = GetParam().tied ? 1 / std::sqrt(20.0) : 1.0;
    save_model(folder_ / "model", TransformerModel(config, 5), {.dtype = GetParam().dtype});
  }
  std::unique_ptr<TransformerModel> load(bool pack, at::ScalarType dtype = at::kFloat) const {
    return load_model(folder_ / "model", {.dtype = dtype, .pack = pack});
  }

  // Logits of a few cached steps, the last of them after a rollback.
  static at::Tensor logits(TransformerModel& model) {
    const TokenBatch source = random_batch({5, 3}, 23, 1);
    const auto state = model.config().encoder_decoder ? model.begin(model.encode(source), 16) : model.begin(2, 16);
    model.step(step_input({{2, 3, 4}, {5, 6, 7}}), *state);
    const std::vector<int64_t> kept{2, 1};
    state->rollback(kept);
    return model.step(step_input({{8}, {9, 10}}), *state).logits;
  }

  const TemporaryDirectory folder_;
};

TEST_P(DecodingLoad, StepsAsTheUnpackedModelDoes) {
  const auto plain = load(false);
  EXPECT_LT(difference(logits(*load(true)), logits(*plain)), 1e-4);
  EXPECT_EQ(difference(logits(*load(true, at::kDouble)), logits(*load(false, at::kDouble))), 0);
}

// Weights are rounded, hidden states are not.
TEST_P(DecodingLoad, TakesNarrowWeightsWithFp32States) {
  const at::Tensor exact = logits(*load(false));
  for (const auto& [type, most] : {std::pair{at::kBFloat16, 0.03}, {at::kChar, 0.1}}) {
    const auto narrow = load(true, type);
    EXPECT_EQ(narrow->info().dtype, at::kFloat);
    const at::Tensor found = logits(*narrow);
    EXPECT_EQ(found.scalar_type(), at::kFloat);
    EXPECT_LT(difference(found, exact), most * largest(exact)) << type;
    EXPECT_EQ(difference(found, exact) > 1e-5 * largest(exact), type != GetParam().dtype) << type;
  }
}

TEST_P(DecodingLoad, Int8IsForPackedModelsOnCpus) {
  EXPECT_NE(error_of([&] { load(false, at::kChar); }).find("not packed"), std::string::npos);
  const auto on_gpu = [&] { load_model(folder_ / "model", {.device = at::kCUDA, .dtype = at::kChar}); };
  EXPECT_NE(error_of(on_gpu).find("int8 on cuda"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Stored, DecodingLoad,
                         testing::Values(Stored{"t5", true, at::kFloat}, Stored{"t5", false, at::kFloat},
                                         Stored{"t5", true, at::kBFloat16}, Stored{"t5", false, at::kHalf},
                                         Stored{"t5", false, at::kDouble}, Stored{"gpt2", true, at::kFloat},
                                         Stored{"gpt2", true, at::kBFloat16}),
                         [](const auto& instance) {
                           return instance.param.family + (instance.param.tied ? "Tied" : "Untied") +
                                  c10::toString(instance.param.dtype);
                         });

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
  std::vector<TransformerConfig> all = tiny_families();
  for (const Family& family : families()) all.push_back(tiny_of(family));
  for (TransformerConfig config : all) {
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
