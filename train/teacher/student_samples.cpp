#include "train/teacher/student_samples.h"

#include <algorithm>

#include "base/device_tensors.h"
#include "base/random.h"
#include "data/corpus/batches.h"
#include "infer/generator.h"

namespace draftsmith::train {
namespace {

// Samples decoded together at most.
constexpr int64_t kMostRows = 1024;

// Returns the prompt or source for the student; an empty prompt begins with the start token.
std::vector<std::vector<int64_t>> sources_of(const data::Corpus& corpus, const std::vector<int64_t>& examples,
                                             const model::ModelInfo& info) {
  std::vector<std::vector<int64_t>> sources;
  for (const int64_t example : examples) {
    const auto source = corpus.source(example);
    sources.emplace_back(source.begin(), source.end());
    if (source.empty() && !info.encoder_decoder) sources.back().push_back(info.decoder_start);
  }
  return sources;
}

// Cuts a sample whose last token a model of so many positions could not read; 0: any.
void cut_to_positions(std::span<const int32_t> source, int64_t positions, std::vector<int32_t>& sample) {
  // As data::joined_length(): the last token is predicted only, and the start token stands for an empty source.
  const int64_t most = positions - (source.empty() ? 0 : std::ssize(source) - 1);
  if (positions > 0 && std::ssize(sample) > most) sample.resize(static_cast<size_t>(std::max<int64_t>(0, most)));
}

// Returns how many of the first examples fit the budget in rows of `width` tokens, 0: one padded row for each. At least
// one.
size_t within_budget(const std::vector<ExampleTokens>& examples, bool encoder_decoder, int64_t width,
                     int64_t token_budget) {
  std::vector<int64_t> lengths;
  int64_t longest = width;
  for (size_t i = 0; i < examples.size(); ++i) {
    const auto [source, target] = examples[i];
    const auto separate = static_cast<int64_t>(std::max(source.size(), target.size()));
    lengths.push_back(encoder_decoder ? separate : data::joined_length(source, target));
    longest = std::max(longest, lengths.back());
    if (i > 0 && (data::packed_rows(lengths, width).back() + 1) * longest > token_budget) return i;
  }
  return examples.size();
}

}  // namespace

Fields<OnPolicyOptions> OnPolicyOptions::fields() {
  using T = OnPolicyOptions;
  return Fields<T>("on-policy distillation")
      .add(
          "share", &T::share, Range{0, 1},
          "Share of micro-batches whose targets are the student's own samples for the same sources, judged by the live "
          "teacher; their loss has no cross entropy. 0: off.")
      .add("temperature", &T::temperature, Range{0}, "Temperature of the samples; 0: greedy.")
      .add("max_new_tokens", &T::max_new_tokens, Range{1}, Unit{"tokens"},
           "Longest sample; longer ones are cut, also at the last position of student and teacher. Where samples "
           "outgrow batches.token_budget, the last of a batch are left out.")
      .add("seed", &T::seed, "Seed of the choice of micro-batches and of the samples.");
}

bool StudentSamples::takes(uint64_t micro_step) const {
  return CounterRandom(options_.seed, "on-policy/micro-batches").uniform(micro_step) < options_.share;
}

Batch StudentSamples::batch(const TrainableModel& student, const Batch& given, uint64_t micro_step) const {
  const PlainArithmetic plain(student.info().device.type());
  const TextWriters writers = student.text_writers();
  const auto model = writers.alone();
  infer::DecodeOptions decoding;
  decoding.method = infer::baseline_method(options_.temperature).name;
  decoding.temperature = options_.temperature;
  decoding.top_k = 0;
  decoding.top_p = 1;
  decoding.max_new_tokens = options_.max_new_tokens;
  decoding.long_prompts = "skip";  // a prompt that fills the context has an empty sample
  decoding.batch_size = std::clamp<int64_t>(static_cast<int64_t>(given.examples.size()), 1, kMostRows);
  decoding.seed = CounterRandom(options_.seed, "on-policy/samples").bits(micro_step);
  infer::GenerationModels models;
  models.target = model.get();
  models.generation = model::default_generation_config(writers.target->config());
  infer::Generator generator(models, decoding);
  const auto results = generator.generate(sources_of(*corpus_, given.examples, student.info()));
  infer::throw_if_failed(results);

  std::vector<std::vector<int32_t>> targets;
  for (const infer::GenerationResult& result : results) {
    const auto foreign = std::find_if(result.ids.begin(), result.ids.end(),
                                      [&](int64_t id) { return id >= corpus_->info().vocabulary; });
    targets.emplace_back(result.ids.begin(), foreign);
  }
  std::vector<ExampleTokens> examples;
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto source = corpus_->source(given.examples[i]);
    cut_to_positions(student.info().encoder_decoder ? std::span<const int32_t>() : source, teacher_positions_,
                     targets[i]);
    examples.push_back({source, targets[i]});
  }
  // Packs rows if the given batch was packed.
  const int64_t pack = given.decoder_input.segments.empty() ? 0 : given.decoder_input.tokens.size(1);
  if (token_budget_ > 0) {
    examples.resize(within_budget(examples, student.info().encoder_decoder, pack, token_budget_));
  }
  return make_batch(examples, student.info(), pack);
}

}  // namespace draftsmith::train
