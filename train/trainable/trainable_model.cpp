#include "train/trainable/trainable_model.h"

#include <algorithm>
#include <array>

#include <ATen/core/grad_mode.h>

#include "base/device_tensors.h"
#include "base/error.h"
#include "data/corpus/batches.h"
#include "model/files/weight_files.h"
#include "model/models/shared_encoder.h"
#include "model/transformer/parameters.h"
#include "train/objectives/linear_loss.h"

namespace draftsmith::train {

namespace {

// The host's part of a batch: its numbers, before any device has them.
struct HostBatch {
  Batch batch;                       // without tensors
  std::vector<int64_t> source = {};  // [B*S]
  std::vector<int64_t> inputs = {};  // [B*T]
  std::vector<int64_t> labels = {};  // [P]
  int64_t source_width = 0;          // S
  int64_t width = 0;                 // T
};

// Puts prompt and continuation in one row, and several examples in a row if rows are packed.
HostBatch joined_batch(std::span<const ExampleTokens> examples, const model::ModelInfo& model, int64_t pack_tokens) {
  std::vector<int64_t> lengths;
  for (const ExampleTokens& example : examples) {
    lengths.push_back(data::joined_length(example.source, example.target));
  }
  const std::vector<int64_t> row_of = data::packed_rows(lengths, pack_tokens);
  const auto rows = static_cast<size_t>(row_of.back()) + 1;
  HostBatch host;
  Batch& batch = host.batch;
  batch.decoder_input.lengths.assign(rows, 0);
  batch.decoder_input.segments.resize(rows);
  for (size_t i = 0; i < examples.size(); ++i) {
    const auto row = static_cast<size_t>(row_of[i]);
    batch.decoder_input.lengths[row] += lengths[i];
    batch.decoder_input.segments[row].push_back(lengths[i]);
  }
  const int64_t width = *std::max_element(batch.decoder_input.lengths.begin(), batch.decoder_input.lengths.end());
  host.width = width;
  host.inputs.assign(rows * static_cast<size_t>(width), model.pad);
  std::vector<int64_t> filled(rows, 0);
  for (size_t i = 0; i < examples.size(); ++i) {
    const auto row = static_cast<size_t>(row_of[i]);
    const int64_t begin = row_of[i] * width + filled[row];
    const auto& [source, target] = examples[i];
    auto end = std::ranges::copy(source, host.inputs.begin() + begin).out;
    if (source.empty()) *end++ = model.decoder_start;
    const int64_t first_label = end - host.inputs.begin() - 1;
    if (!target.empty()) std::copy(target.begin(), target.end() - 1, end);
    host.labels.insert(host.labels.end(), target.begin(), target.end());
    batch.label_counts.push_back(std::ssize(target));
    for (int64_t j = 0; j < std::ssize(target); ++j) batch.places.push_back(first_label + j);
    filled[row] += lengths[i];
  }
  if (rows == examples.size()) batch.decoder_input.segments.clear();
  return host;
}

// Puts source and target in separate rows.
HostBatch separate_batch(std::span<const ExampleTokens> examples, const model::ModelInfo& model) {
  HostBatch host;
  Batch& batch = host.batch;
  host.width = 1;
  for (const auto& [source, target] : examples) {
    batch.source.lengths.push_back(std::ssize(source));
    batch.label_counts.push_back(std::ssize(target));
    batch.decoder_input.lengths.push_back(std::max<int64_t>(std::ssize(target), 1));
    host.source_width = std::max<int64_t>(host.source_width, std::ssize(source));
    host.width = std::max<int64_t>(host.width, std::ssize(target));
  }
  host.source.assign(examples.size() * static_cast<size_t>(host.source_width), model.pad);
  host.inputs.assign(examples.size() * static_cast<size_t>(host.width), model.pad);
  int64_t row = 0;
  for (const auto& [source, target] : examples) {
    std::ranges::copy(source, host.source.begin() + row * host.source_width);
    const int64_t begin = row++ * host.width;
    host.inputs[static_cast<size_t>(begin)] = model.decoder_start;
    std::copy_n(target.begin(), std::min<int64_t>(std::ssize(target), host.width - 1), host.inputs.begin() + begin + 1);
    host.labels.insert(host.labels.end(), target.begin(), target.end());
    for (int64_t t = 0; t < std::ssize(target); ++t) batch.places.push_back(begin + t);
  }
  return host;
}

// Returns the batch on a device: one copy, which the host does not wait for.
Batch to_device(HostBatch host, at::Device device) {
  Batch batch = std::move(host.batch);
  const std::array<const std::vector<int64_t>*, 4> parts{&host.source, &host.inputs, &host.labels, &batch.places};
  int64_t size = 0;
  for (const auto* part : parts) size += std::ssize(*part);
  const at::Tensor joined = at::empty({size}, at::kLong);
  auto* end = joined.mutable_data_ptr<int64_t>();
  for (const auto* part : parts) end = std::copy(part->begin(), part->end(), end);
  const at::Tensor all = upload(joined, device);
  int64_t begin = 0;
  const auto next = [&](const std::vector<int64_t>& part) {
    begin += std::ssize(part);
    return all.narrow(0, begin - std::ssize(part), std::ssize(part));
  };
  const at::Tensor source = next(host.source);
  const auto rows = std::ssize(batch.decoder_input.lengths);
  if (!batch.source.lengths.empty()) batch.source.tokens = source.view({rows, host.source_width});  // [B,S]
  batch.decoder_input.tokens = next(host.inputs).view({rows, host.width});                          // [B,T]
  batch.labels = next(host.labels);                                                                 // [P]
  batch.positions = next(batch.places);                                                             // [P]
  return batch;
}

}  // namespace

at::Tensor Batch::sequences() const {
  std::vector<int64_t> numbers;
  for (size_t example = 0; example < label_counts.size(); ++example) {
    numbers.insert(numbers.end(), static_cast<size_t>(label_counts[example]), static_cast<int64_t>(example));
  }
  return upload(at::tensor(numbers, at::kLong), labels.device());
}

Batch make_batch(std::span<const ExampleTokens> examples, const model::ModelInfo& model, int64_t pack_tokens) {
  return to_device(model.encoder_decoder ? separate_batch(examples, model) : joined_batch(examples, model, pack_tokens),
                   model.device);
}

Batch make_batch(const data::Corpus& corpus, const std::vector<int64_t>& examples, const model::ModelInfo& model,
                 int64_t pack_tokens) {
  std::vector<ExampleTokens> tokens;
  for (const int64_t example : examples) tokens.push_back({corpus.source(example), corpus.target(example)});
  Batch batch = make_batch(tokens, model, pack_tokens);
  batch.examples = examples;
  batch.corpus = &corpus;
  return batch;
}

model::ForwardInput input_of(const Batch& batch) {
  model::ForwardInput input;
  input.source = batch.source;
  input.target = batch.decoder_input;
  return input;
}

at::Tensor at_labels(const at::Tensor& hidden, const Batch& batch) {
  return hidden.reshape({-1, hidden.size(2)}).index_select(0, batch.positions);
}

at::Tensor hidden_at_labels(model::TransformerModel& model, const Batch& batch, const model::DropoutContext& dropout) {
  return at_labels(model.forward(input_of(batch), dropout).hidden, batch);
}

at::Tensor HeadLabels::of(const at::Tensor& hidden) const {
  return kept.size(0) == hidden.size(0) ? hidden : hidden.index_select(0, kept);
}

HeadLabels labels_in_head(const model::TransformerModel& model, const at::Tensor& labels) {
  const model::VocabularyRows& vocabulary = model.vocabulary_rows();
  if (!vocabulary.pruned()) return {labels, at::arange(labels.size(0), labels.options())};
  const at::Tensor known = vocabulary.has(labels).nonzero().squeeze(1);  // [Q]
  return {vocabulary.of(labels.index_select(0, known)), known};
}

model::HeadWeights head_of(const Predictions& predictions) {
  return predictions.head.weight.defined() ? predictions.head : model::own_head(*predictions.model);
}

at::Tensor logits(const Predictions& predictions, const at::Tensor& hidden) {
  const model::TransformerModel& model = *predictions.model;
  model::HeadWeights own = predictions.head;
  if (!own.weight.defined()) {
    // A model without parameters, made for decoding only, computes its logits itself, in its own type.
    const bool half = model.info().dtype == at::kBFloat16 || model.info().dtype == at::kHalf;
    if (!half || model.decoding_only()) return model.head(hidden);
    own = model::own_head(model);
  }
  const std::vector<at::Tensor> multiplied = own.multiplied(hidden);
  at::Tensor of_rows = wide_product(multiplied.front(), own.weight);  // [C,rows]
  if (own.up.defined()) of_rows = of_rows + wide_product(multiplied.back(), own.up);
  if (own.bias.defined()) of_rows = of_rows + own.bias;
  return model.logits_of(of_rows);
}

std::shared_ptr<model::LanguageModel> TextWriters::alone() const {
  if (!shared_encoder) return target;
  return std::make_shared<model::SharedEncoderPair>(*shared_encoder, *target);
}

model::ModelInfo of_both(model::ModelInfo info, const model::ModelInfo& other) {
  const bool shorter = info.max_positions == 0 || other.max_positions < info.max_positions;
  if (other.max_positions > 0 && shorter) info.max_positions = other.max_positions;
  return info;
}

std::map<std::string, at::Tensor> with_prefix(const std::string& prefix,
                                              const std::map<std::string, at::Tensor>& parameters) {
  std::map<std::string, at::Tensor> renamed;
  for (const auto& [name, tensor] : parameters) renamed[prefix + name] = tensor;
  return renamed;
}

void require_gradients(const TrainableModel& trainable, bool on) {
  for (const auto& [name, parameter] : trainable.parameters()) {
    at::Tensor value = parameter;
    value.requires_grad_(on && !model::is_constant(name));
  }
}

void copy_parameters(const std::map<std::string, at::Tensor>& from, const std::map<std::string, at::Tensor>& into,
                     const std::string& where) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : into) {
    const auto found = from.find(name);
    if (found == from.end() || found->second.sizes() != tensor.sizes()) {
      throw UserError(Problem{.where = where,
                              .what = "the weights are of another architecture",
                              .expected = name + " " + model::shape_text(tensor.sizes()),
                              .found = found == from.end() ? "none" : model::shape_text(found->second.sizes())});
    }
    at::Tensor target = tensor;
    target.copy_(found->second);
  }
}

void OneModelTrainable::save(const std::filesystem::path& directory, const model::SaveOptions& options) const {
  model::save_model(directory, model_, options);
}

void OneModelTrainable::load(const std::filesystem::path& directory) {
  const auto stored = model::load_model(model::ModelDirectory(directory, kind_),
                                        {.device = info().device, .dtype = info().dtype, .pack = false});
  copy_parameters(stored->parameters(), model_.parameters(), directory.string());
}

TrainableOutput PlainTrainable::forward(const Batch& batch, const model::DropoutContext& dropout) {
  return {
      .predictions = {{.model = &model_, .hidden = hidden_at_labels(model_, batch, dropout), .labels = batch.labels}}};
}

std::unique_ptr<model::TransformerModel> packed_copy(const model::TransformerModel& model) {
  std::map<std::string, at::Tensor> parameters;
  for (const auto& [name, tensor] : model.parameters()) parameters[name] = tensor.detach();
  auto copy = std::make_unique<model::TransformerModel>(model.config(), std::move(parameters));
  copy->pack();
  return copy;
}

}  // namespace draftsmith::train
