// Decoding on the stand-in accelerator: every method gives the CPU's ids, for every family.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "infer/drafters/model_drafter.h"
#include "infer/generator.h"
#include "tests/standin/standin.h"
#include "tests/support/early_exit_fixtures.h"
#include "tests/support/models.h"

namespace draftsmith::standin {
namespace {

using Ids = std::vector<int64_t>;
using infer::DecodeOptions;

const std::vector<Ids> kSources{{5, 9, 3, 1}, {7}, {2, 4, 6, 8, 10, 12}, {11, 13, 5}, {9, 9}};

DecodeOptions options_of(const std::string& method, double temperature, int64_t batch) {
  DecodeOptions options;
  options.method = method;
  if (options.method_info().sampling != infer::Sampling::kNever) options.temperature = temperature;
  options.max_new_tokens = 12;
  options.batch_size = batch;
  return options;
}

// Decodes with a target and a drafter of the family on a device. Endless outputs have no EOS.
std::vector<Ids> decode(const model::TransformerConfig& config, const DecodeOptions& options, at::Device where,
                        at::ScalarType type, bool endless = false) {
  const auto model_of = [&](uint64_t seed) {
    auto model = model::varied_model(config, seed, type);
    model->requires_grad(false);
    model->to(where, type);
    model->pack();
    return model;
  };
  const auto target = model_of(1);
  const auto drafter = model_of(2);
  infer::GenerationModels models;
  models.target = target.get();
  if (endless) {
    models.generation = model::default_generation_config(config);
    models.generation->eos_ids.clear();
  }
  if (options.drafts()) models.drafter = infer::as_drafter(*drafter, nullptr);
  std::vector<Ids> outputs;
  for (const auto& result : infer::Generator(models, options).generate(kSources)) {
    EXPECT_FALSE(result.error.has_value());
    outputs.push_back(result.ids);
  }
  return outputs;
}

TEST(StandinDecoding, EveryMethodGivesTheCpusIds) {
  struct Setting {
    const char* method;
    double temperature;
    int64_t batch;
  };
  const std::vector<Setting> settings{{"greedy", 0, 1},      {"greedy", 0, 5},      {"sample", 1, 5},
                                      {"speculative", 1, 1}, {"speculative", 1, 5}, {"speculative", 0, 5},
                                      {"assisted", 0, 5},    {"bild", 0, 1},        {"bild", 0, 5}};
  for (const model::TransformerConfig& config : model::tiny_families()) {
    for (const auto& [method, temperature, batch] : settings) {
      SCOPED_TRACE(fmt::format("{} {} T {} batch {}", config.family, method, temperature, batch));
      const DecodeOptions options = options_of(method, temperature, batch);
      EXPECT_EQ(decode(config, options, device(), at::kDouble), decode(config, options, at::kCPU, at::kDouble));
    }
  }
}

// Methods inside a model: its first layers draft, decide or predict early.
TEST(StandinDecoding, MethodsInsideTheModelGiveTheCpusIds) {
  for (const char* family : {"t5", "llama"}) {
    for (const char* method : {"early-exit", "calm", "ppd"}) {
      for (const int64_t batch : {1, 3}) {
        SCOPED_TRACE(fmt::format("{} {} batch {}", family, method, batch));
        DecodeOptions options = infer::testing::exit_options(method, batch);
        if (options.drafts_inside()) options.exit_layer = 2;
        const auto model = infer::testing::exit_model({.family = family});
        const auto expected = infer::testing::tokens_of(infer::testing::run_exit(*model, 0, options));
        model->unpack();
        model->to(device(), at::kDouble);
        model->pack();
        EXPECT_EQ(infer::testing::tokens_of(infer::testing::run_exit(*model, 0, options)), expected);
      }
    }
  }
}

// Cost of a further token to the host: the difference of two lengths.
struct Step {
  double launches = 0;
  double copies = 0;
  double waits = 0;
};

Step step_of(const model::TransformerConfig& config, const char* method, at::ScalarType type) {
  const auto counts_of = [&](int64_t tokens) {
    DecodeOptions options = options_of(method, 0, 1);
    options.max_new_tokens = tokens;
    reset_counts();
    decode(config, options, device(), type, /*endless=*/true);
    return counts();
  };
  const Counts few = counts_of(4);
  const Counts many = counts_of(12);
  const double tokens = 8.0 * static_cast<double>(kSources.size());
  const auto share = [&](int64_t more, int64_t less) { return static_cast<double>(more - less) / tokens; };
  return {share(many.all_launches(), few.all_launches()),
          share(many.copies_to_device + many.copies_to_host, few.copies_to_device + few.copies_to_host),
          share(many.waits, few.waits)};
}

// The numbers are those of today: lower them with every step towards one wait a round.
TEST(StandinDecoding, AGreedyStepKeepsItsBudget) {
  struct Budget {
    model::TransformerConfig config;
    at::ScalarType type;
    double launches;
    double copies;
    double waits;
  };
  const std::vector<Budget> budgets{{model::tiny_t5(), at::kFloat, 106, 8, 2},
                                    {model::tiny_t5(), at::kBFloat16, 106, 8, 2},
                                    {model::tiny_llama(3), at::kFloat, 130, 5, 2},
                                    {model::tiny_llama(3), at::kBFloat16, 130, 5, 2}};
  for (const Budget& budget : budgets) {
    const Step step = step_of(budget.config, "greedy", budget.type);
    SCOPED_TRACE(fmt::format("{} {}, {} layers: {} launches, {} copies, {} waits a token", budget.config.family,
                             at::toString(budget.type), budget.config.decoder_layers, step.launches, step.copies,
                             step.waits));
    EXPECT_LE(step.launches, budget.launches);
    EXPECT_LE(step.copies, budget.copies);
    EXPECT_LE(step.waits, budget.waits);
  }
}

}  // namespace
}  // namespace draftsmith::standin
