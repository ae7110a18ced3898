// Training beside busy processes: fewer threads, the same model to the bit.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "base/divided_products.h"
#include "base/files.h"
#include "base/parallel_regions.h"
#include "tests/support/models.h"
#include "tests/support/tensors.h"
#include "tests/train/fixtures.h"
#include "tests/train/trainable/tandem_training_fixtures.h"
#include "train/training_step.h"

namespace draftsmith::train {
namespace {

// The weights after two steps whose regions have that many workers.
Weights weights_after_steps(const data::Corpus& corpus, int64_t workers) {
  const auto model = model::varied_model(with_test_vocabulary(model::tiny_t5()), 3, at::kFloat);
  PlainTrainable trainable(*model);
  require_gradients(trainable, true);
  const auto objective = make_objective({});
  const auto optimizer = make_optimizer(trainable.parameters(), {});
  const DividedProducts divided;
  for (uint64_t step = 0; step < 2; ++step) {
    limit_region_workers(workers);
    const StepResult result = accumulate_gradients(trainable, *objective, corpus, {{0, 1, 2, 3}, {4, 5, 6, 7}},
                                                   {.dropout = 0.1, .first_micro_step = 2 * step});
    optimizer->step(1e-3, gradient_scale(result, 1.0));
    optimizer->zero_grad();
    limit_region_workers(0);
  }
  Weights weights;
  for (const auto& [name, value] : trainable.parameters()) weights[name] = value.detach().clone();
  return weights;
}

TEST(BusyMachine, TrainingGivesTheSameBitsWithFewerWorkers) {
  const TemporaryDirectory folder;
  write_copy_corpus(folder / "corpus.h5", 8, 3);
  const data::Corpus corpus(folder / "corpus.h5");
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  const Weights expected = weights_after_steps(corpus, 0);
  EXPECT_FALSE(expected.empty());
  for (const int64_t workers : {1, 2}) {
    EXPECT_EQ(differences(weights_after_steps(corpus, workers), expected, 0), "") << workers;
  }
  at::set_num_threads(before);
}

}  // namespace
}  // namespace draftsmith::train
