// Validations: measures of labels, BLEU of greedy outputs, and speculative decodes against decoding done by hand.
#include "train/validation.h"

#include <cmath>
#include <numeric>

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "infer/drafters/model_drafter.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/generator.h"
#include "tests/support/errors.h"
#include "tests/support/models.h"
#include "tests/support/pieces_tokenizer.h"
#include "tests/train/fixtures.h"

namespace draftsmith::train {
namespace {

constexpr int64_t kOutputTokens = 10, kDrafted = 12;

class Validation : public testing::Test {
 protected:
  void SetUp() override {
    write_reversal_corpus(folder_ / "train.h5", 100, 1);
    write_reversal_corpus(folder_ / "validation.h5", 20, 2);
    corpus_.emplace(folder_ / "validation.h5");
    for (int64_t i = 0; i < corpus_->size(); ++i) {
      sources_.emplace_back(corpus_->source(i).begin(), corpus_->source(i).end());
    }
  }

  static ValidationOptions drafting(double temperature) {
    ValidationOptions options{.draft_examples = kDrafted, .draft_window = 3, .max_new_tokens = kOutputTokens};
    options.draft_temperature = temperature;
    return options;
  }

  DraftMeasures measure(model::TransformerModel& trained, model::TransformerModel& target, double temperature) const {
    PlainTrainable trainable(trained);
    return validate(trainable, {.corpus = &*corpus_, .teacher = &target}, drafting(temperature)).drafts.value();
  }

  std::vector<std::vector<int64_t>> drafted() const { return {sources_.begin(), sources_.begin() + kDrafted}; }

  TemporaryDirectory folder_;
  std::optional<data::Corpus> corpus_;
  std::vector<std::vector<int64_t>> sources_;
};

// The target's outputs, decoded without any drafter.
std::vector<std::vector<int64_t>> outputs_of(model::TransformerModel& target,
                                             const std::vector<std::vector<int64_t>>& sources) {
  infer::DecodeOptions options{.max_new_tokens = kOutputTokens};
  infer::GenerationModels models{.target = &target};
  std::vector<std::vector<int64_t>> outputs;
  for (const auto& result : infer::Generator(models, options).generate(sources)) outputs.push_back(result.ids);
  return outputs;
}

TEST_F(Validation, ForcedMeasuresAreOnTheTargetsOwnOutputs) {
  model::TransformerModel trained(tiny_config(), 5), target(tiny_config(), 6);
  const auto outputs = outputs_of(target, drafted());
  const auto expected = infer::measure_forced_alpha({target, trained}, {drafted(), outputs}, {.temperature = 0});
  const DraftMeasures found = measure(trained, target, 0);
  EXPECT_DOUBLE_EQ(found.agreement, expected.agreement);
  EXPECT_DOUBLE_EQ(found.alpha_forced, expected.alpha);
  EXPECT_DOUBLE_EQ(found.alpha_forced, found.agreement) << "greedy";
}

TEST_F(Validation, AlphaAndTokensPerRunAreTheDecodes) {
  model::TransformerModel trained(tiny_config(), 5), target(tiny_config(), 6);
  for (const double temperature : {0.0, 1.0}) {
    infer::DecodeOptions options{.method = "speculative", .window = 3, .measure_alpha = true};
    options.temperature = temperature;
    options.max_new_tokens = kOutputTokens;
    infer::GenerationModels models{.target = &target, .drafter = infer::as_drafter(trained)};
    const auto stats = infer::total(infer::Generator(models, options).generate(drafted()));
    const DraftMeasures found = measure(trained, target, temperature);
    EXPECT_NEAR(found.alpha, stats.alpha(), 1e-6) << temperature;
    EXPECT_DOUBLE_EQ(found.tokens_per_target_run, stats.tokens_per_target_run()) << temperature;
  }
}

TEST_F(Validation, ChoosesTheBestModelAndShowsItsCost) {
  const data::Corpus corpus(folder_ / "train.h5");
  model::TransformerModel model(tiny_config(), 5), target(tiny_config(), 6);
  PlainTrainable trainable(model);
  for (const std::string measure : {"agreement", "alpha_forced", "alpha", "tokens_per_target_run"}) {
    TrainOptions options = tiny_options();
    options.length = "2 steps";
    options.validation = drafting(1);
    options.validation.measure = measure;
    const TrainResult result = run_training(
        {.trainable = trainable, .corpus = corpus, .validation = {.corpus = &*corpus_, .teacher = &target}}, options,
        folder_ / measure);
    const auto summary = nlohmann::json::parse(read_file(folder_ / measure / "validation.json"));
    EXPECT_EQ(summary.at("model").at(measure).get<double>(), *result.state.best_value);
    EXPECT_NE(summary.at("model").at("overlap"), summary.at("model").at("alpha"));
    const std::string log = read_file(folder_ / measure / "metrics.jsonl");
    EXPECT_NE(log.find("\"decoding_seconds\""), std::string::npos) << log;
  }
}

TEST_F(Validation, DraftsThatCannotBeMeasuredAreRefused) {
  model::TransformerModel model(tiny_config(), 5);
  PlainTrainable trainable(model);
  EXPECT_THAT(error_of([&] { check_validation(trainable, {.corpus = &*corpus_}, drafting(0)); }),
              HasSubstr("needs a target"));
  TrainOptions options = tiny_options();
  options.validation.measure = "alpha";
  options.validation.max_new_tokens = 1;
  EXPECT_THAT(option_problems(options),
              AllOf(HasSubstr("draft_examples above 0"), HasSubstr("\"overlap\""), HasSubstr("at least 2")));
}

TEST_F(Validation, ATextThatFailsIsAnErrorAndNotLeftOut) {
  model::TransformerModel trained(tiny_config(), 5), target(tiny_config(), 6);
  {
    const at::NoGradGuard no_gradients;
    target.parameters().at("embedding.weight")[sources_[3][0]].fill_(std::nan(""));
  }
  EXPECT_THAT(error_of<RunError>([&] { measure(trained, target, 0); }), testing::HasSubstr("not finite"));
}

TEST_F(Validation, CountsEveryLabelOnceWhateverTheBatches) {
  model::TransformerModel model(tiny_config(), 5);
  PlainTrainable trainable(model);
  ValidationOptions options;
  const ValidationResult large = validate(trainable, {.corpus = &*corpus_}, options);
  options.token_budget = 12;
  const ValidationResult small = validate(trainable, {.corpus = &*corpus_}, options);
  EXPECT_EQ(large.labels, corpus_->info().target_tokens);
  EXPECT_EQ(small.labels, large.labels);
  EXPECT_NEAR(small.loss, large.loss, 1e-5);
  EXPECT_EQ(small.accuracy, large.accuracy);
  EXPECT_NEAR(large.loss, std::log(kTestVocabulary), 1.0);
}

TEST_F(Validation, OverlapWithItselfIsOneAndWithAnotherLess) {
  model::TransformerModel model(tiny_config(), 5), other(tiny_config(), 6);
  PlainTrainable trainable(model);
  EXPECT_NEAR(*validate(trainable, {.corpus = &*corpus_, .teacher = &model}, {}).overlap, 1, 1e-5);
  const double overlap = *validate(trainable, {.corpus = &*corpus_, .teacher = &other}, {}).overlap;
  EXPECT_LT(overlap, 0.99);
  EXPECT_GT(overlap, 0.01);
}

// Against the model's own outputs BLEU is perfect, also after its weights have changed.
TEST_F(Validation, BleuIsOfTheGreedyOutputsOfTheWeightsAsTheyAre) {
  const LetterWords tokenizer(kTestVocabulary, "none");
  const auto model = model::varied_model(tiny_config(), 5, at::kFloat);
  PlainTrainable trainable(*model);
  const auto outputs = [&](const std::string& name, uint64_t seed) {
    data::CorpusWriter writer(folder_ / name, corpus_->info());
    const auto written = outputs_of(*model::varied_model(tiny_config(), seed, at::kFloat), sources_);
    for (size_t i = 0; i < written.size(); ++i) {
      writer.add(corpus_->source(static_cast<int64_t>(i)), std::vector<int32_t>(written[i].begin(), written[i].end()));
    }
    writer.finish();
    return data::Corpus(folder_ / name);
  };
  const auto bleu = [&](const data::Corpus& references) {
    ValidationOptions options{.bleu_examples = corpus_->size(), .max_new_tokens = kOutputTokens};
    return validate(trainable, {.corpus = &references, .tokenizer = &tokenizer}, options).bleu.value();
  };
  const data::Corpus before = outputs("before.h5", 5), after = outputs("after.h5", 6);
  EXPECT_GT(bleu(before), 99.0);
  EXPECT_LT(bleu(*corpus_), 99.0) << "against other targets an untrained model cannot be perfect";
  {
    const at::NoGradGuard no_grad;
    const auto other = model::varied_model(tiny_config(), 6, at::kFloat);
    for (const auto& [name, tensor] : model->parameters()) at::Tensor(tensor).copy_(other->parameters().at(name));
  }
  EXPECT_GT(bleu(after), 99.0);
  EXPECT_LT(bleu(before), 99.0);
}

// Labels that a pruned vocabulary lacks count in accuracy and overlap, as missed.
TEST_F(Validation, OfAPrunedVocabularyIsOverAllIds) {
  const auto model = pruned(model::TransformerModel(tiny_config(), 5));
  PlainTrainable trainable(*model);
  model::TransformerModel teacher(tiny_config(), 5);
  const ValidationResult result = validate(trainable, {.corpus = &*corpus_, .teacher = &teacher}, {});
  EXPECT_EQ(result.labels, corpus_->info().target_tokens);
  std::vector<int64_t> all(static_cast<size_t>(corpus_->size()));
  std::iota(all.begin(), all.end(), 0);
  const at::NoGradGuard no_grad;
  const Batch batch = make_batch(*corpus_, all, model->info());
  const at::Tensor logits = model->head(hidden_at_labels(*model, batch, {}));  // [P,15]
  EXPECT_LT(batch.labels.lt(kPrunedRows).sum().item<int64_t>(), result.labels);
  EXPECT_NEAR(result.accuracy, logits.argmax(1).eq(batch.labels).to(at::kDouble).mean().item<double>(), 1e-9);
  EXPECT_EQ(validate(trainable, {.corpus = &*corpus_}, {.max_examples = 1}).labels, std::ssize(corpus_->target(0)));
  // Random weights are nearly uniform: 15 of 29 ids overlap.
  EXPECT_NEAR(*result.overlap, static_cast<double>(kPrunedRows) / kTestVocabulary, 0.15);
}

}  // namespace
}  // namespace draftsmith::train
