#include "tests/parity/model_comparison.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "base/files.h"
#include "infer/generator.h"
#include "model/families/family.h"
#include "model/files/model_directory.h"
#include "tests/support/random_steps.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {

std::unique_ptr<TransformerModel> load(const std::filesystem::path& directory, bool pack, at::ScalarType dtype) {
  return load_model(directory, {.device = at::kCPU, .dtype = dtype, .pack = pack});
}

at::Tensor forward_logits(TransformerModel& model, const Reference& reference) {
  const ForwardOutput output =
      model.forward({.source = reference.source, .target = reference.target, .hidden_layers = {}});
  return model.head(output.hidden);
}

double logits_difference(const at::Tensor& logits, const Reference& reference) {
  double worst = 0;
  for (size_t row = 0; row < reference.target.lengths.size(); ++row) {
    const auto b = static_cast<int64_t>(row);
    const int64_t length = reference.target.lengths[row];
    worst =
        std::max(worst, relative_difference(logits[b].narrow(0, 0, length), reference.logits[b].narrow(0, 0, length)));
  }
  return worst;
}

double steps_difference(TransformerModel& model, const Reference& reference) {
  return RandomSteps(model, reference.source, reference.target, reference.logits, 3).worst_difference();
}

void expect_equal_gradients(const std::string& name, TransformerModel& model, const Reference& reference) {
  model.requires_grad(true);
  const at::Tensor logits = forward_logits(model, reference);
  const at::Tensor loss = at::cross_entropy_loss(logits.flatten(0, 1), reference.labels.flatten());
  loss.backward();
  EXPECT_NEAR(loss.item<double>(), reference.loss, 1e-4 * reference.loss) << name;
  const Family& family = families().at(model.config().family);
  std::set<std::string> seen;
  for (const auto& [parameter, tensor] : model.parameters()) {
    if (parameter == "head.bias") continue;  // a constant
    StoredTensor stored = stored_parameter(family, parameter, model.config());
    // Transformers 5 calls GPT-NeoX's head lm_head in memory.
    if (parameter == "head.weight") {
      stored.name = reference.grads.count(stored.name) != 0 ? stored.name : "lm_head.weight";
    }
    seen.insert(stored.name);
    ASSERT_EQ(reference.grads.count(stored.name), 1) << name << ": " << stored.name;
    ASSERT_TRUE(tensor.grad().defined()) << name << ": " << parameter;
    const at::Tensor wanted = take_parameter(reference.grads.at(stored.name), stored, model.config().heads);
    // Relative to the stored tensor's largest. A key projection's bias has no gradient but rounding errors.
    const double change = difference(tensor.grad(), wanted);
    const double least = parameter.ends_with(".key.bias") ? 1e-5 : 1e-7;
    EXPECT_LT(change, kGradientTolerance * largest(reference.grads.at(stored.name)) + least)
        << name << ": " << parameter;
  }
  EXPECT_EQ(seen.size(), reference.grads.size()) << name;
}

GenerationConfig settings_of(const nlohmann::json& json, const TransformerModel& model) {
  const TemporaryDirectory directory;
  write_file_atomic(directory / "generation_config.json", json.dump());
  Problems problems;
  GenerationConfig settings = read_generation_config(directory.path(), {}, model.config(), problems);
  problems.throw_if_any();
  return settings;
}

Lists greedy_outputs(TransformerModel& model, const Lists& sources, int64_t new_tokens, int64_t batch_size,
                     const std::optional<GenerationConfig>& settings) {
  infer::DecodeOptions options{.method = "greedy", .max_new_tokens = new_tokens, .batch_size = batch_size};
  infer::GenerationModels models{.target = &model, .generation = settings};
  Lists outputs;
  for (auto& result : infer::Generator(models, options).generate(sources)) outputs.push_back(std::move(result.ids));
  return outputs;
}

}  // namespace draftsmith::model
