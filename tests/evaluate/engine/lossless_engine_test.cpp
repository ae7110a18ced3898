// Checks of lossless settings on real models, with processors on, and with defects planted into their decoding.
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/evaluate/model_suite.h"

namespace draftsmith::evaluate {
namespace {

using nlohmann::ordered_json;

using Decode = std::function<std::vector<LineRecord>(const Setting&, const DecodeBatch&)>;

// The engine of the models, whose decoding of some settings is another's.
class PlantedEngine : public Engine {
 public:
  PlantedEngine(const SuiteOptions& options, std::string label, Decode wrong)
      : inner_(make_model_engine(options)), label_(std::move(label)), wrong_(std::move(wrong)) {}
  void check(const Setting& run, Problems& problems) override { inner_->check(run, problems); }
  Prompt encode(const std::string& source, const TaskOptions& task, bool& cut) const override {
    return inner_->encode(source, task, cut);
  }
  std::vector<int64_t> encode_reference(const std::string& reference, const TaskOptions& task) const override {
    return inner_->encode_reference(reference, task);
  }
  std::vector<int64_t> encode_continuation(const std::string& source, const TaskOptions& task) const override {
    return inner_->encode_continuation(source, task);
  }
  std::string text(const std::vector<int64_t>& generated, bool ids) const override {
    return inner_->text(generated, ids);
  }
  std::vector<LineRecord> decode(const Setting& run, const DecodeBatch& batch) override {
    return run.label == label_ ? wrong_(run, batch) : inner_->decode(run, batch);
  }
  std::vector<double> logit_gaps(const Setting& run, const TextStart& start, std::span<const int64_t> tokens) override {
    return inner_->logit_gaps(run, start, tokens);
  }
  double logit_rounding(const Setting& run, std::span<const Prompt> prompts,
                        const std::vector<std::vector<int64_t>>& outputs) override {
    return inner_->logit_rounding(run, prompts, outputs);
  }
  std::vector<TokenMass> first_token_masses(const Setting& run, std::span<const Prompt> prompts,
                                            const std::vector<std::vector<int64_t>>& tokens,
                                            int64_t max_new_tokens) override {
    return inner_->first_token_masses(run, prompts, tokens, max_new_tokens);
  }
  infer::StepCosts step_costs(const Setting& run, const Prompt& prompt, const std::vector<int64_t>& output,
                              int64_t max_tokens) override {
    return inner_->step_costs(run, prompt, output, max_tokens);
  }
  ForcedAlphas forced_alpha(const Setting& run, std::span<const Prompt> prompts,
                            const std::vector<std::vector<int64_t>>& outputs) override {
    return inner_->forced_alpha(run, prompts, outputs);
  }
  ordered_json description() const override { return inner_->description(); }
  std::string fingerprint() const override { return inner_->fingerprint(); }

 private:
  std::unique_ptr<Engine> inner_;
  std::string label_;
  Decode wrong_;
};

class LosslessSuite : public ModelSuite {
 protected:
  void SetUp() override {
    ModelSuite::SetUp();
    write_model(root_ / "plain", 3, 1);  // the target without processors
    write_file_atomic(
        root_ / "target/generation_config.json",
        R"({"decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, "repetition_penalty": 5})");
  }

  SuiteResult evaluate(Engine& engine) const {
    return run_evaluation(options_, root_ / "out", engine, {.quiet = true});
  }
};

TEST_F(LosslessSuite, LosslessMethodsPassWithProcessorsOn) {
  add_run("assisted", "small");
  add_run("speculative", "small").decode.num_samples = 4;
  for (const char* dtype : {"fp64", "fp32", "bf16", "fp16"}) {
    options_.dtype = dtype;
    const SuiteResult result = run_evaluation(options_, root_ / "out", {.quiet = true});
    EXPECT_EQ(failed_lossless_checks(result), 0) << result.table;
    const auto results = to_json(result.results);
    EXPECT_EQ(find(results, "assisted.small").at("lossless_check"), true);
    const auto sampled = find(results, "speculative.small.T1.samples4");
    EXPECT_EQ(sampled.at("first_tokens").at("tokens"), 10 * 4);
    EXPECT_EQ(sampled.at("lossless_check"), true);
    EXPECT_EQ(find(results, "sample.T1.samples4").at("lossless_check"), true);
  }
}

// The penalty makes the most likely token another one, and the defect forgets it.
TEST_F(LosslessSuite, AMethodThatForgetsTheProcessorsFails) {
  add_run("assisted", "small");
  SuiteOptions plain = options_;
  plain.model = root_ / "plain";
  const auto forgetful = make_model_engine(plain);
  PlantedEngine engine(options_, "assisted.small",
                       [&](const Setting& run, const DecodeBatch& batch) { return forgetful->decode(run, batch); });
  const SuiteResult result = evaluate(engine);
  ASSERT_EQ(failed_lossless_checks(result), 1) << result.table;
  const auto run = find(to_json(result.results), "assisted.small");
  EXPECT_GT(run.at("exactness").at("unexplained_lines"), 0);
  EXPECT_LT(run.at("exactness").at("tolerance"), 1e-9);
  EXPECT_GT(run.at("exactness").at("tolerance"), 0);
}

TEST_F(LosslessSuite, ARuleThatSamplesFromTheDrafterFails) {
  add_run("speculative", "small").decode.num_samples = 128;
  const auto other = make_model_engine(options_);
  PlantedEngine engine(options_, "speculative.small.T1.samples128", [&](const Setting& run, const DecodeBatch& batch) {
    Setting drafter = sampling_of(run);
    drafter.model = "small";
    drafter.decode.num_samples = run.decode.num_samples;
    return other->decode(drafter, batch);
  });
  const SuiteResult result = evaluate(engine);
  EXPECT_EQ(failed_lossless_checks(result), 1) << result.table;
  EXPECT_EQ(find(to_json(result.results), "sample.T1.samples128").at("lossless_check"), true);
}

}  // namespace
}  // namespace draftsmith::evaluate
