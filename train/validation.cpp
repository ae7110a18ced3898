#include "train/validation.h"

#include <algorithm>
#include <cstdint>

#include <ATen/core/grad_mode.h>

#include "base/signals.h"
#include "base/timing.h"
#include "data/corpus/batches.h"
#include "infer/drafters/model_drafter.h"
#include "infer/drafters/tandem_drafter.h"
#include "infer/forced/teacher_forcing.h"
#include "infer/generator.h"
#include "infer/loop/processors.h"
#include "infer/sampling/row_kernels.h"
#include "metrics/metric.h"
#include "train/objectives/objective.h"

namespace draftsmith::train {
namespace {

// Probabilities held at a time when two models are compared.
constexpr int64_t kProbabilitiesAtOnce = int64_t{1} << 23;

// Sum over labels of sum over v of min(p, q). Ids that one of the models lacks count as 0.
double overlap_of(const Predictions& first, const Predictions& second) {
  const int64_t vocabulary = std::min(first.model->config().vocabulary, second.model->config().vocabulary);
  const int64_t block = std::max<int64_t>(1, kProbabilitiesAtOnce / vocabulary);
  const auto probabilities = [&](const Predictions& side, int64_t begin, int64_t count) {
    const at::Tensor all = logits(side, side.hidden.narrow(0, begin, count));  // [C,V]
    return all.to(at::kFloat).softmax(1).narrow(1, 0, vocabulary);
  };
  double sum = 0;
  for (int64_t begin = 0; begin < first.hidden.size(0); begin += block) {
    const int64_t count = std::min(block, first.hidden.size(0) - begin);
    const at::Tensor p = probabilities(first, begin, count);
    const at::Tensor q = probabilities(second, begin, count);
    sum += at::minimum(p, q).sum().to(at::kDouble).item<double>();
  }
  return sum;
}

// Sums over one prediction, or over several together.
struct PredictionSums {
  int64_t layer = 0;  // that an exit reads
  double weight = 1;  // of its loss in the sum of losses
  double loss = 0;
  std::optional<double> overlap;  // where there is a teacher
  int64_t correct = 0;
  int64_t labels = 0;
  int64_t in_head = 0;  // labels that the model can give; the loss is over these

  void add(const Predictions& own, const std::optional<Predictions>& teacher) {
    const HeadLabels known = labels_in_head(*own.model, own.labels);
    const Prediction prediction = predict(known.of(own.hidden), head_of(own), known.rows);
    layer = own.layer;
    weight = own.weight;
    loss += prediction.loss.sum.item<double>();
    correct += prediction.arg_maxs.eq(known.rows).sum().item<int64_t>();
    labels += own.labels.size(0);
    in_head += prediction.loss.count;
    if (teacher) overlap = overlap.value_or(0) + overlap_of(*teacher, own);
  }
  void add(const PredictionSums& other) {
    loss += other.loss;
    correct += other.correct;
    labels += other.labels;
    in_head += other.in_head;
    if (other.overlap) overlap = overlap.value_or(0) + *other.overlap;
  }
  double mean_loss() const { return loss / static_cast<double>(std::max<int64_t>(1, in_head)); }
  double per_label(double sum) const { return sum / static_cast<double>(std::max<int64_t>(1, labels)); }
  double accuracy() const { return per_label(static_cast<double>(correct)); }
  std::optional<double> mean_overlap() const { return overlap ? std::optional(per_label(*overlap)) : std::nullopt; }
};

// Returns the sum of the mean losses, each times its weight.
double weighted_loss(const std::vector<PredictionSums>& sums) {
  double loss = 0;
  for (const PredictionSums& one : sums) loss += one.weight * one.mean_loss();
  return loss;
}

constexpr int64_t kDecodingRows = 32;

int64_t examples_to_use(const ValidationInputs& inputs, int64_t limit) {
  return limit == 0 ? inputs.corpus->size() : std::min(limit, inputs.corpus->size());
}

// Labels of the first `count` examples.
int64_t count_labels(const data::Corpus& corpus, int64_t count) {
  int64_t labels = 0;
  for (int64_t i = 0; i < count; ++i) labels += static_cast<int64_t>(corpus.target(i).size());
  return labels;
}

// Returns the teacher's predictions for a batch: those of the validation's teacher, or else of the one that the trained
// models run anyway.
std::optional<Predictions> teacher_of(const ValidationInputs& inputs, const TrainableOutput& output,
                                      const Batch& batch) {
  if (!inputs.teacher) return output.teacher;
  return Predictions{
      .model = inputs.teacher, .hidden = hidden_at_labels(*inputs.teacher, batch, {}), .labels = batch.labels};
}

// Sums over the batches: of the first prediction, and of the exits after it.
std::vector<PredictionSums> measure(TrainableModel& trainable, const ValidationInputs& inputs,
                                    const ValidationOptions& options) {
  std::vector<PredictionSums> sums;
  const int64_t count = examples_to_use(inputs, options.max_examples);
  const auto form = trainable.info().encoder_decoder ? data::RowForm::kSeparate : data::RowForm::kJoined;
  data::BatchOrder order(*inputs.corpus, {.token_budget = options.token_budget}, form);
  for (const auto& examples : order.of_range(0, count)) {
    work_point();
    const Batch batch = make_batch(*inputs.corpus, examples, trainable.info());
    TrainableOutput output = trainable.forward(batch, {});
    std::vector<Predictions>& measured = output.predictions;
    measured.erase(std::remove_if(measured.begin() + 1, measured.end(), [](const auto& p) { return p.layer == 0; }),
                   measured.end());
    sums.resize(measured.size());
    const auto teacher = teacher_of(inputs, output, batch);
    for (size_t i = 0; i < measured.size(); ++i) sums[i].add(measured[i], teacher);
  }
  return sums;
}

std::vector<std::vector<int64_t>> sources_of(const ValidationInputs& inputs, int64_t limit) {
  std::vector<std::vector<int64_t>> sources;
  for (int64_t i = 0; i < examples_to_use(inputs, limit); ++i) {
    const auto source = inputs.corpus->source(i);
    sources.emplace_back(source.begin(), source.end());
  }
  return sources;
}

std::vector<infer::GenerationResult> decoded(const infer::GenerationModels& models,
                                             const infer::DecodeOptions& decoding,
                                             const std::vector<std::vector<int64_t>>& sources) {
  infer::Generator generator(models, decoding);
  auto results = generator.generate(sources);
  infer::throw_if_failed(results);
  return results;
}

// Returns the BLEU of greedy outputs.
double greedy_bleu(const TrainableModel& trained, const ValidationInputs& inputs, const ValidationOptions& options) {
  const TextWriters writers = trained.text_writers();
  const auto model = writers.tandem ? writers.target : writers.alone();
  infer::DecodeOptions decoding;
  decoding.method = writers.tandem ? "tandem" : "greedy";
  if (writers.tandem) decoding.window = writers.block;
  decoding.batch_size = kDecodingRows;
  decoding.max_new_tokens = options.max_new_tokens;
  decoding.long_prompts = "skip";
  infer::GenerationModels models;
  models.target = model.get();
  if (writers.tandem) models.drafter = infer::tandem_drafter(writers.tandem, inputs.tokenizer);
  models.generation = model::default_generation_config(writers.target->config());
  models.target_tokenizer = inputs.tokenizer;
  const model::StatesFreed freed(*model);  // training needs the memory
  metrics::References references;
  std::vector<std::string> hypotheses;
  for (const auto& result : decoded(models, decoding, sources_of(inputs, options.bleu_examples))) {
    references.push_back({inputs.tokenizer->decode(inputs.corpus->target(std::ssize(hypotheses)))});
    hypotheses.push_back(infer::text_of_known(*inputs.tokenizer, result.ids));
  }
  const auto bleu = metrics::make_metric({});
  return bleu->score(bleu->statistics({hypotheses, references}).sum(), 0);
}

infer::SharedDrafter drafter_of(const TextWriters& writers, const data::Tokenizer* tokenizer) {
  if (writers.tandem) return infer::tandem_drafter(writers.tandem, tokenizer);
  if (writers.shared_encoder) return infer::shared_encoder_drafter(writers.shared_encoder, tokenizer);
  return infer::as_drafter(*writers.target, tokenizer);
}

// Decodes the sources with the trained models as they are now.
DraftMeasures measure_drafts(const TrainableModel& trained, const ValidationInputs& inputs,
                             const ValidationOptions& options) {
  const TextWriters writers = trained.text_writers();
  infer::DecodeOptions decoding;
  decoding.method = writers.tandem ? "tandem-speed" : "speculative";
  decoding.window = options.draft_window;
  decoding.temperature = options.draft_temperature;
  decoding.top_k = 0;
  decoding.top_p = 1;
  decoding.measure_alpha = true;
  decoding.batch_size = kDecodingRows;
  decoding.max_new_tokens = options.max_new_tokens;
  decoding.long_prompts = "skip";
  infer::GenerationModels models;
  model::TransformerModel& target = writers.drafts_for_target() ? *writers.target : *inputs.teacher;
  models.target = &target;
  models.drafter = drafter_of(writers, inputs.tokenizer);
  models.generation = model::default_generation_config(target.config());
  models.target_tokenizer = inputs.tokenizer;
  const model::StatesFreed freed(target);  // training needs the memory
  const model::StatesFreed drafter_freed(*models.drafter->model());
  const auto sources = sources_of(inputs, options.draft_examples);
  const auto results = decoded(models, decoding, sources);
  const std::vector<std::vector<int64_t>> outputs = from_each(results, &infer::GenerationResult::ids);
  const infer::ForcedAlpha forced = models.drafter->forced_alpha(
      models.draft_target(), {sources, outputs}, {.temperature = options.draft_temperature}, writers.block);
  const infer::DecodeStats stats = infer::total(results);
  return {.alpha = stats.alpha(),
          .tokens_per_target_run = stats.tokens_per_target_run(),
          .alpha_forced = forced.alpha,
          .agreement = forced.agreement};
}

bool continues_nothing(const ValidationInputs& inputs, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (inputs.corpus->source(i).empty()) return true;
  }
  return false;
}

void check_drafts(const TrainableModel& trainable, const ValidationInputs& inputs, const ValidationOptions& options,
                  Problems& problems) {
  const std::string where = "validation.draft_examples";
  if (!trainable.writes_text()) {
    problems.add({where, "the trained models cannot draft on their own, so there is no speculative decode", "0",
                  std::to_string(options.draft_examples), "measure it afterwards, with an evaluation of the result"});
  } else if (!inputs.teacher && !trainable.has_target()) {
    problems.add({where, "a speculative decode needs a target",
                  "`teacher`, the model that the trained one is to draft for", "none given", ""});
  }
}

}  // namespace

void check_validation(const TrainableModel& trainable, const ValidationInputs& inputs,
                      const ValidationOptions& options) {
  if (!inputs.corpus) return;
  Problems problems;
  if (count_labels(*inputs.corpus, examples_to_use(inputs, options.max_examples)) == 0) {
    problems.add({inputs.corpus->file().string(),
                  "the validation examples have no target token, so there is nothing to measure", "at least one", "",
                  ""});
  }
  if (options.bleu_examples > 0 && !inputs.tokenizer) {
    problems.add({"validation.bleu_examples", "BLEU needs a tokenizer", "", "none given", ""});
  }
  if (options.bleu_examples > 0 && !trainable.writes_text()) {
    problems.add({"validation.bleu_examples",
                  "the trained models cannot decode on their own, so there is no BLEU during training", "0",
                  std::to_string(options.bleu_examples), "measure it afterwards, with an evaluation of the result"});
  }
  if (options.measure == "overlap" && !inputs.teacher && !trainable.teaches()) {
    problems.add({"validation.measure", "overlap needs a teacher", "", "none given", ""});
  }
  if (options.draft_examples > 0) check_drafts(trainable, inputs, options, problems);
  const int64_t decoded = examples_to_use(inputs, std::max(options.bleu_examples, options.draft_examples));
  if (options.bleu_examples + options.draft_examples > 0 && !trainable.info().encoder_decoder &&
      continues_nothing(inputs, decoded)) {
    problems.add({options.draft_examples > 0 ? "validation.draft_examples" : "validation.bleu_examples",
                  "an example has no prompt, so all outputs would be alike",
                  "a validation corpus of prompts and continuations", inputs.corpus->file().string(), ""});
  }
  problems.throw_if_any();
}

ValidationResult validate(TrainableModel& trainable, const ValidationInputs& inputs, const ValidationOptions& options) {
  const at::NoGradGuard no_grad;
  const std::vector<PredictionSums> sums = measure(trainable, inputs, options);
  PredictionSums whole = sums.front();
  for (size_t i = 1; i < sums.size() && trainable.measures_all(); ++i) whole.add(sums[i]);
  ValidationResult result{.loss = whole.mean_loss(),
                          .accuracy = whole.accuracy(),
                          .labels = sums.front().labels,
                          .bleu = {},
                          .overlap = whole.mean_overlap(),
                          .drafts = {},
                          .weighted_loss = {},
                          .exits = {}};
  if (sums.size() > 1 && !trainable.measures_all()) result.weighted_loss = weighted_loss(sums);
  for (const PredictionSums& exit : sums) {
    if (exit.layer > 0) result.exits.push_back({exit.layer, exit.mean_loss(), exit.accuracy(), exit.mean_overlap()});
  }
  const Stopwatch watch;
  if (options.bleu_examples > 0) result.bleu = greedy_bleu(trainable, inputs, options);
  if (options.draft_examples > 0) result.drafts = measure_drafts(trainable, inputs, options);
  if (result.bleu || result.drafts) result.decoding_seconds = watch.seconds();
  return result;
}

double value_of(const ValidationResult& result, const std::string& measure) {
  if (measure == "accuracy") return result.accuracy;
  if (measure == "bleu") return result.bleu.value();
  if (measure == "overlap") return result.overlap.value();
  if (measure == "agreement") return result.drafts.value().agreement;
  if (measure == "alpha_forced") return result.drafts.value().alpha_forced;
  if (measure == "alpha") return result.drafts.value().alpha;
  if (measure == "tokens_per_target_run") return result.drafts.value().tokens_per_target_run;
  return result.weighted_loss.value_or(result.loss);
}

}  // namespace draftsmith::train
