#include "tests/parity/model_comparison.h"

#include <algorithm>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "infer/generator.h"
#include "model/families/family.h"
#include "model/files/checkpoint.h"
#include "tests/support/tensors.h"

namespace draftsmith::model {

namespace {

// Feeds the reference's target in steps of 0..8 tokens a row, each row its own number, with rollbacks between them.
class RandomSteps {
 public:
  RandomSteps(TransformerModel& model, const Reference& reference)
      : model_(model), reference_(reference), rows_(reference.target.tokens.size(0)) {
    const int64_t capacity = reference.target.tokens.size(1) + 8;
    state_ = model_.config().encoder_decoder ? model_.begin(model_.encode(reference.source), capacity)
                                             : model_.begin(rows_, capacity);
  }

  double worst_difference() {
    double worst = 0;
    for (int round = 0; !done() && round < 2000; ++round) {
      worst = std::max(worst, step());
      if (round % 3 == 1) {
        roll_back();
      }
    }
    EXPECT_TRUE(done()) << "the steps never reached the end";
    return worst;
  }

 private:
  int64_t remaining(int64_t row) const {
    return reference_.target.lengths[static_cast<size_t>(row)] - state_->length(row);
  }

  bool done() const {
    for (int64_t row = 0; row < rows_; ++row) {
      if (remaining(row) > 0) {
        return false;
      }
    }
    return true;
  }

  int64_t draw(int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random_); }

  double step() {
    const int64_t tokens = 1 + draw(7);
    StepInput input;
    input.tokens = at::full({rows_, tokens}, 3, at::kLong);
    std::vector<int64_t> before;
    for (int64_t row = 0; row < rows_; ++row) {
      before.push_back(state_->length(row));
      const int64_t count = std::min(remaining(row), draw(tokens));
      input.new_tokens.push_back(count);
      input.tokens[row].narrow(0, 0, count).copy_(reference_.target.tokens[row].narrow(0, before.back(), count));
    }
    const at::Tensor logits = model_.step(input, *state_).logits;  // [B,L,V]
    double worst = 0;
    for (int64_t row = 0; row < rows_; ++row) {
      const auto index = static_cast<size_t>(row);
      const int64_t count = input.new_tokens[index];
      if (count > 0) {
        worst = std::max(worst, relative_difference(logits[row].narrow(0, 0, count),
                                                    reference_.logits[row].narrow(0, before[index], count)));
      }
    }
    return worst;
  }

  void roll_back() {
    std::vector<int64_t> lengths;
    for (int64_t row = 0; row < rows_; ++row) {
      lengths.push_back(std::max<int64_t>(0, state_->length(row) - draw(6)));
    }
    state_->rollback(lengths);
  }

  TransformerModel& model_;
  const Reference& reference_;
  int64_t rows_;
  std::unique_ptr<DecodeState> state_;
  std::mt19937 random_{3};
};

}  // namespace

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
  return RandomSteps(model, reference).worst_difference();
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
    StoredTensor stored = family.stored(parameter, model.config());
    // Transformers 5 calls GPT-NeoX's head lm_head in memory.
    if (parameter == "head.weight") {
      stored.name = reference.grads.count(stored.name) != 0 ? stored.name : "lm_head.weight";
    }
    seen.insert(stored.name);
    ASSERT_EQ(reference.grads.count(stored.name), 1) << name << ": " << stored.name;
    ASSERT_TRUE(tensor.grad().defined()) << name << ": " << parameter;
    const at::Tensor wanted = take_parameter(reference.grads.at(stored.name), stored, model.config().heads);
    // Relative to the stored tensor's largest: a key projection's bias has no gradient but rounding errors.
    const double change = difference(tensor.grad(), wanted);
    EXPECT_LT(change, kGradientTolerance * largest(reference.grads.at(stored.name)) + 1e-7)
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
                     const GenerationConfig& settings) {
  infer::DecodeOptions options;
  options.method = "greedy";
  options.max_new_tokens = new_tokens;
  options.batch_size = batch_size;
  infer::GenerationModels models;
  models.target = &model;
  models.generation = settings;
  Lists outputs;
  for (auto& result : infer::Generator(models, options).generate(sources)) outputs.push_back(std::move(result.ids));
  return outputs;
}

}  // namespace draftsmith::model
