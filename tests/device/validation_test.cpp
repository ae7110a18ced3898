// Validation between the steps of a training leaves the device's memory as it was, whatever it decodes with.
#include "train/validation.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/device/test_device.h"
#include "tests/device/training_run.h"
#include "tests/standin/standin.h"
#include "train/trainable/trainable_model.h"

namespace draftsmith::train {
namespace {

size_t allocated_bytes() {
  standin::take_peak_bytes();
  return standin::take_peak_bytes();
}

TEST(DeviceValidation, LeavesNoStates) {
  if (!on_device::on_standin()) GTEST_SKIP() << "only the stand-in accelerator counts bytes";
  const TemporaryDirectory folder;
  on_device::write_training_corpus(folder / "corpus.h5", 12, false);
  const data::Corpus corpus(folder / "corpus.h5");
  const auto trained = on_device::trainee(model::tiny_t5(), on_device::test_device(), at::kFloat);
  const auto teacher = on_device::trainee(model::tiny_t5(), on_device::test_device(), at::kFloat);
  PlainTrainable trainable(*trained);
  ValidationOptions options;
  options.draft_examples = 8;
  options.draft_window = 3;
  options.max_new_tokens = 10;
  const auto validated = [&] {
    validate(trainable, {.corpus = &corpus, .teacher = teacher.get()}, options);
    return allocated_bytes();
  };
  const size_t before = allocated_bytes();
  EXPECT_EQ(validated(), before);
  EXPECT_EQ(validated(), before);
}

}  // namespace
}  // namespace draftsmith::train
