// Checks of decoding on a device, random weights made there, to be passed before anything is timed: tools/gpu runs it.
//
//   build/release/bench/bench_device_checks --shapes tiny-t5,t5-large --device cuda --json FILE
//
// Own kernels run, steps are recorded, neither changes the numbers, and lossless methods give greedy decoding's ids.
// Prints a JSON record a check. Ends with 1 if any fails.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <c10/util/ScopeExit.h>

#include "base/device_kernels.h"
#include "bench/support/benches.h"
#include "bench/support/program.h"
#include "infer/costs/step_costs.h"
#include "infer/drafters/model_drafter.h"
#include "infer/generator.h"
#include "model/transformer/transformer_parts.h"

namespace draftsmith::bench {
namespace {

using infer::random_sources;
using Ids = std::vector<std::vector<int64_t>>;

constexpr int64_t kLines = 8;       // that are decoded
constexpr int64_t kNewTokens = 24;  // of each
constexpr int64_t kSource = 32;     // tokens of a source or prompt
constexpr int64_t kManyRows = 16;
constexpr int64_t kWindow = 4;  // of drafts
constexpr int64_t kSteps = 4;   // of one token: the first as it is, the second recorded, the others replayed

// Returns the configuration of a model that has the first layers of another one.
model::TransformerConfig drafter_of(model::TransformerConfig config) {
  const auto fewer = [](int64_t layers) { return std::min<int64_t>(2, (layers + 1) / 2); };
  config.encoder_layers = fewer(config.encoder_layers);
  config.decoder_layers = fewer(config.decoder_layers);
  return config;
}

class Checks {
 public:
  Checks(const std::string& shape, at::Device device, at::ScalarType type, Records& records)
      : shape_(shape), device_(device), type_(type), records_(records), config_(shape_config(shape)) {}

  // Returns whether all checks passed.
  bool run() {
    const auto target = made(config_);
    const DeviceExecution before = device_execution();
    const Ids greedy = decoded(*target, "greedy", 1);
    const DeviceExecution after = device_execution();
    const bool own = after.kernel_launches > before.kernel_launches;
    const bool exact = type_ == at::kFloat || type_ == at::kDouble;
    const auto differing = [&](model::TransformerModel& model, const std::string& method, int64_t rows) {
      const Ids found = decoded(model, method, rows);
      int64_t count = 0;
      for (size_t i = 0; i < greedy.size(); ++i) count += found.at(i) == greedy[i] ? 0 : 1;
      return static_cast<double>(count);
    };
    at_most("kernels_missing", own || !device_.is_cuda() ? 0 : 1, 0);
    at_most("recordings_missing", after.replays > before.replays || device_.is_cpu() ? 0 : 1, 0);
    // Half types are rounded at other places: .007 to .03 of the norm, by simulations of tiny and of real shapes.
    at_most("logits_kernels", logits_difference(), exact ? 1e-4 : 5e-2);
    // LibTorch's products promise nothing, and those of several rows round differently.
    at_most("row_alone", rows_that_differ(*target), own ? 0 : kManyRows);
    {
      want_recordings(false);
      const auto wanted = c10::make_scope_exit([] { want_recordings(true); });
      at_most("lossless_eager", differing(*made(config_), "greedy", 1), 0);
    }
    at_most("lossless_batch_16", differing(*target, "greedy", kManyRows), exact ? 0 : kLines);
    for (const std::string method : {"speculative", "assisted"}) {
      at_most("lossless_" + method, differing(*target, method, 1), exact || own ? 0 : kLines);
    }
    return passed_;
  }

 private:
  // Adds a record of a number that must not be above its bound.
  void at_most(const std::string& name, double value, double bound) {
    const bool passed = value <= bound;
    passed_ = passed_ && passed;
    records_.add("check", {{"check", name},
                           {"shape", shape_},
                           {"dtype", dtype_name(type_)},
                           {"value", value},
                           {"bound", bound},
                           {"passed", passed}});
  }

  std::unique_ptr<model::TransformerModel> made(const model::TransformerConfig& config) const {
    return random_decoder(config, device_, type_);
  }

  Ids decoded(model::TransformerModel& model, const std::string& method, int64_t rows) {
    infer::DecodeOptions options{.method = method, .temperature = 0, .max_new_tokens = kNewTokens, .batch_size = rows};
    infer::GenerationModels models{.target = &model};
    if (options.drafts()) {
      if (!drafter_) drafter_ = made(drafter_of(config_));
      models.drafter = infer::as_drafter(*drafter_);
      options.window = kWindow;
      if (method == "assisted") options.schedule = "constant";  // never more rows than own kernels take
    }
    infer::Generator generator(models, options);
    const auto results = generator.generate(random_sources(kLines, kSource, config_.vocabulary));
    infer::throw_if_failed(results);
    Ids ids;
    for (const auto& result : results) ids.push_back(result.ids);
    return ids;
  }

  // Returns a new model's logits of a step of one token, the last of some equal ones. fp64 [1,1,V] on the CPU.
  at::Tensor logits() const {
    const auto model = made(config_);
    const infer::ContextSize size{.rows = 1, .source = kSource, .length = kSource};
    infer::TimedModel step(*model, infer::random_context(model->info(), size), 1);
    for (int64_t i = 0; i < kSteps; ++i) {
      step.go_back();
      step.run(1);
    }
    return step.output().logits.to(at::kCPU).to(at::kDouble);
  }

  // Returns what own kernels change, as a share of the norm.
  double logits_difference() const {
    const at::Tensor found = logits();
    want_own_kernels(false);
    const auto wanted = c10::make_scope_exit([] { want_own_kernels(true); });
    const at::Tensor expected = logits();
    return ((found - expected).norm() / expected.norm()).item<double>();
  }

  // Returns how many of equal rows differ from the same row alone.
  double rows_that_differ(model::TransformerModel& model) const {
    const at::Tensor alone = stepped(model, 1)[0];
    const at::Tensor rows = stepped(model, kManyRows);
    int64_t differ = 0;
    for (int64_t i = 0; i < kManyRows; ++i) differ += at::equal(rows[i], alone) ? 0 : 1;
    return static_cast<double>(differ);
  }

  // Returns the logits of a few steps of one token, of rows that are equal. [rows,kSteps,V] on the CPU.
  at::Tensor stepped(model::TransformerModel& model, int64_t rows) const {
    const model::DecodingGuard guard;
    model::EncoderStates source;  // of one row, whatever the number of rows is
    if (config_.encoder_decoder) {
      source = model.encode(infer::equal_rows(model, random_sources(1, kSource, config_.vocabulary).front()));
    }
    const auto state = config_.encoder_decoder ? model.begin(source, kSteps, rows) : model.begin(rows, kSteps);
    const Ids tokens = random_sources(1, kSteps, config_.vocabulary);
    std::vector<at::Tensor> logits;
    for (const int64_t token : tokens.front()) {
      const model::TokenBatch batch = infer::equal_rows(model, std::vector{token}, rows);
      logits.push_back(model.step({batch.tokens, batch.lengths, model::Logits::kAll, {}}, *state).logits.to(at::kCPU));
    }
    return at::cat(logits, 1);
  }

  std::string shape_;
  at::Device device_;
  at::ScalarType type_;
  Records& records_;
  model::TransformerConfig config_;
  std::unique_ptr<model::TransformerModel> drafter_;
  bool passed_ = true;
};

}  // namespace
}  // namespace draftsmith::bench

int main(int argc, char** argv) {
  using namespace draftsmith;
  bench::Program program("Checks of decoding on a device, random weights");
  std::vector<std::string> shapes{"tiny-t5", "tiny-llama"};
  program.app.add_option("--shapes", shapes)->delimiter(',');
  return program.run(argc, argv, [&](at::Device device, bench::Records& records) {
    bool passed = true;
    for (const std::string& shape : shapes) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        passed &= records.guard(shape, [&] { return bench::Checks(shape, device, type, records).run(); });
      }
    }
    return passed;
  });
}
