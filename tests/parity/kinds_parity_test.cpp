// Models of kinds of our own are no models of Transformers', which says so instead of filling in random weights.
#include <gtest/gtest.h>

#include "model/kinds/block_prediction.h"
#include "model/kinds/deep_tandem.h"
#include "model/kinds/tandem.h"
#include "tests/model/models/tandem_passes.h"
#include "tests/parity/transformers_reference.h"
#include "tests/support/models.h"

namespace draftsmith::model {
namespace {

TEST(KindsParity, TransformersTakesNoneForAModelItKnows) {
  if (!TransformersReference::available()) {
    GTEST_SKIP() << "no Python with Transformers: run ./test, or set DRAFTSMITH_PEERS_PYTHON";
  }
  const TransformersReference reference("parity_kinds.py");
  const auto saved = [&](const std::string& name) { return reference.root() / "saved" / name; };
  for (const TransformerConfig& config : {tiny_mt5(), tiny_llama(3), tiny_gpt2()}) {
    const auto primary = varied_model(config, 1, at::kFloat);
    const auto secondary = make_tandem_secondary(*primary, *primary);
    save_tandem(saved("tandem_" + config.family), *secondary, {.primary = primary.get()});
  }
  save_model(saved("blocks"), TransformerModel(block_prediction_config(tiny_llama(2), 4), 1));
  save_deep_tandem(saved("deep"), DeepTandemModel({tiny_llama(3), tiny_llama(2), 4}, 1));
  EXPECT_EQ(reference.check_saved(), "");
}

}  // namespace
}  // namespace draftsmith::model
