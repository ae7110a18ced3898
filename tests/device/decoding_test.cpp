// Decoding on a device: every method gives the CPU's ids, for every family.
#include "tests/device/decoding.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "infer/generator.h"
#include "tests/device/test_device.h"
#include "tests/support/early_exit_fixtures.h"
#include "tests/support/models.h"
#include "tests/support/tandem_pairs.h"

namespace draftsmith::infer {
namespace {

using draftsmith::on_device::decode_on;
using draftsmith::on_device::device_options;
using draftsmith::on_device::record_graphs;
using draftsmith::on_device::test_device;
using testing::tokens_of;

void move_to_device(model::TransformerModel& model, at::ScalarType type) {
  model.unpack();
  model.to(test_device(), type);
  model.pack();
}

TEST(DeviceDecoding, EveryMethodGivesTheCpusIds) {
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
      const DecodeOptions options = device_options(method, temperature, batch);
      EXPECT_EQ(decode_on(test_device(), config, options, at::kDouble),
                decode_on(at::kCPU, config, options, at::kDouble));
    }
  }
}

// Elsewhere the first step of a kind runs operator by operator, the others are replayed.
TEST(DeviceDecoding, StepsThatAreNotRecordedGiveTheSameIds) {
  const DecodeOptions options = device_options("speculative", 1, 5);
  for (const model::TransformerConfig& config : model::tiny_families()) {
    SCOPED_TRACE(config.family);
    record_graphs(false);
    const auto eager = decode_on(test_device(), config, options, at::kDouble);
    record_graphs(true);
    EXPECT_EQ(decode_on(test_device(), config, options, at::kDouble), eager);
  }
}

// Near ties may go another way in fp32, and do not in these models.
TEST(DeviceDecoding, LosslessMethodsGiveGreedyDecodingInFp32) {
  for (const model::TransformerConfig& config : model::tiny_families()) {
    SCOPED_TRACE(config.family);
    const auto greedy = decode_on(at::kCPU, config, device_options("greedy", 0, 1), at::kFloat);
    for (const char* method : {"greedy", "speculative", "assisted"}) {
      SCOPED_TRACE(method);
      EXPECT_EQ(decode_on(test_device(), config, device_options(method, 0, 5), at::kFloat), greedy);
    }
  }
}

// Methods inside a model: its first layers draft, decide or predict early.
TEST(DeviceDecoding, MethodsInsideTheModelGiveTheCpusIds) {
  for (const char* family : {"t5", "llama"}) {
    for (const char* method : {"early-exit", "calm", "ppd"}) {
      for (const int64_t batch : {1, 3}) {
        SCOPED_TRACE(fmt::format("{} {} batch {}", family, method, batch));
        DecodeOptions options = testing::exit_options(method, batch);
        if (options.drafts_inside()) options.exit_layer = 2;
        const auto model = testing::exit_model({.family = family});
        const auto expected = tokens_of(testing::run_exit(*model, 0, options));
        move_to_device(*model, at::kDouble);
        EXPECT_EQ(tokens_of(testing::run_exit(*model, 0, options)), expected);
      }
    }
  }
}

TEST(DeviceDecoding, TandemPairsGiveTheCpusIds) {
  for (const testing::Kind kind : testing::kKinds) {
    for (const char* method : {"tandem", "tandem-speed"}) {
      for (const int64_t batch : {1, 5}) {
        SCOPED_TRACE(fmt::format("{} {} batch {}", static_cast<int>(kind), method, batch));
        const testing::TandemPair pair = testing::identity_pair(kind, testing::kNoise);
        const DecodeOptions options = testing::tandem_options(method, 4, batch);
        const auto expected = tokens_of(pair.run(options));
        move_to_device(*pair.primary, at::kDouble);
        move_to_device(*pair.secondary, at::kDouble);
        EXPECT_EQ(tokens_of(pair.run(options)), expected);
      }
    }
  }
}

TEST(DeviceDecoding, DraftersThatShareTheTargetsEncoderGiveTheCpusIds) {
  for (const char* method : {"speculative", "assisted", "bild"}) {
    for (const int64_t batch : {1, 5}) {
      SCOPED_TRACE(fmt::format("{} batch {}", method, batch));
      const testing::TandemPair pair = testing::identity_shared_encoder(testing::kNoise);
      const DecodeOptions options = testing::tandem_options(method, 4, batch);
      const auto expected = tokens_of(pair.run(options));
      move_to_device(*pair.primary, at::kDouble);
      move_to_device(*pair.secondary, at::kDouble);
      EXPECT_EQ(tokens_of(pair.run(options)), expected);
    }
  }
}

}  // namespace
}  // namespace draftsmith::infer
