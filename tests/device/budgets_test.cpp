// Budgets of decoding: what a token asks of a device. Counted on the stand-in accelerator.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/device/decoding.h"
#include "tests/device/test_device.h"
#include "tests/standin/standin.h"
#include "tests/support/models.h"

namespace draftsmith::on_device {
namespace {

// Cost of a further token to the host: the difference of two lengths.
struct Step {
  double launches = 0;
  double copies = 0;
  double waits = 0;
  std::string by_name;
};

Step step_of(const model::TransformerConfig& config, const char* method, at::ScalarType type) {
  const auto counts_of = [&](int64_t tokens) {
    infer::DecodeOptions options = device_options(method, 0, 1);
    options.max_new_tokens = tokens;
    standin::reset_counts();
    decode_on(test_device(), config, options, type, /*endless=*/true);
    return standin::counts();
  };
  const standin::Counts few = counts_of(4);
  standin::Counts many = counts_of(12);
  const double tokens = 8.0 * static_cast<double>(device_sources().size());
  const auto share = [&](int64_t more, int64_t less) { return static_cast<double>(more - less) / tokens; };
  Step step{share(many.all_launches(), few.all_launches()),
            share(many.copies_to_device + many.copies_to_host, few.copies_to_device + few.copies_to_host),
            share(many.waits, few.waits),
            {}};
  for (auto& [name, count] : many.launches) {
    const auto before = few.launches.find(name);
    const double added = share(count, before == few.launches.end() ? 0 : before->second);
    if (added > 0) step.by_name += fmt::format(" {} {:.3g}", name, added);
  }
  return step;
}

class DeviceBudgets : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!on_standin()) GTEST_SKIP() << "only the stand-in accelerator counts";
  }
  void TearDown() override {
    if (on_standin()) standin::record_graphs(true);
  }

  static std::string description(const model::TransformerConfig& config, at::ScalarType type, const Step& step) {
    return fmt::format("{} {}, {} layers: {} launches, {} copies, {} waits a token:{}", config.family,
                       at::toString(type), config.decoder_layers, step.launches, step.copies, step.waits, step.by_name);
  }
};

// The numbers are those of today: lower them with every step towards one wait a round.
TEST_F(DeviceBudgets, AGreedyStep) {
  struct Budget {
    model::TransformerConfig config;
    at::ScalarType type;
    double launches_a_layer;
    double other_launches;
  };
  const std::vector<Budget> budgets{{model::tiny_t5(), at::kFloat, 9, 5},
                                    {model::tiny_t5(), at::kBFloat16, 9, 5},
                                    {model::tiny_llama(3), at::kFloat, 7, 4},
                                    {model::tiny_llama(3), at::kBFloat16, 7, 4}};
  standin::device();
  standin::record_graphs(false);
  for (const Budget& budget : budgets) {
    model::TransformerConfig fewer = budget.config;
    --fewer.decoder_layers;
    const Step step = step_of(budget.config, "greedy", budget.type);
    const double layer = step.launches - step_of(fewer, "greedy", budget.type).launches;
    const double other = step.launches - layer * static_cast<double>(budget.config.decoder_layers);
    SCOPED_TRACE(description(budget.config, budget.type, step));
    fmt::print("{:<8} {:<8} step by step  {:5.1f} launches a layer and {:4.1f} others, {} copies, {} waits a token\n",
               budget.config.family, at::toString(budget.type), layer, other, step.copies, step.waits);
    EXPECT_LE(layer, budget.launches_a_layer);
    EXPECT_LE(other, budget.other_launches);
    EXPECT_LE(step.copies, 2);
    EXPECT_LE(step.waits, 1);
  }
}

// A replay, whose token the host reads.
TEST_F(DeviceBudgets, AGreedyStepThatIsReplayed) {
  for (const model::TransformerConfig& config : {model::tiny_t5(), model::tiny_llama(3)}) {
    const Step step = step_of(config, "greedy", at::kFloat);
    SCOPED_TRACE(description(config, at::kFloat, step));
    fmt::print("{:<8} {:<8} replayed      {:5.1f} launches, {} copies, {} waits a token\n", config.family,
               at::toString(at::kFloat), step.launches, step.copies, step.waits);
    EXPECT_LE(step.launches, 1);
    EXPECT_LE(step.copies, 1);
    EXPECT_LE(step.waits, 1);
  }
}

}  // namespace
}  // namespace draftsmith::on_device
