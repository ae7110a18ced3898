#include "train/batch.h"

#include <algorithm>

#include "data/corpus/batches.h"

namespace draftsmith::train {

namespace {

at::Tensor to_tensor(const std::vector<int64_t>& values, at::IntArrayRef shape) {
  at::Tensor tensor = at::empty(shape, at::kLong);
  std::copy(values.begin(), values.end(), tensor.data_ptr<int64_t>());
  return tensor;
}

// Inputs and labels of one example of a decoder-only model.
struct JoinedExample {
  std::vector<int64_t> inputs;  // start token or source, then all but the last target token
  std::vector<int64_t> labels;  // the target
  int64_t first_label = 0;      // position of the first label among the inputs
};

JoinedExample joined_example(const ExampleTokens& example, int64_t start) {
  JoinedExample joined;
  const auto& [source, target] = example;
  joined.inputs.assign(source.begin(), source.end());
  if (source.empty()) joined.inputs.push_back(start);
  joined.first_label = static_cast<int64_t>(joined.inputs.size()) - 1;
  if (!target.empty()) joined.inputs.insert(joined.inputs.end(), target.begin(), target.end() - 1);
  joined.labels.assign(target.begin(), target.end());
  return joined;
}

// Puts prompt and continuation in one row, and several examples in a row if rows are packed.
Batch joined_batch(std::span<const ExampleTokens> examples, const model::ModelInfo& model, int64_t pack_tokens) {
  std::vector<int64_t> lengths;
  for (const ExampleTokens& example : examples) {
    lengths.push_back(data::joined_length(example.source, example.target));
  }
  const std::vector<int64_t> row_of = data::packed_rows(lengths, pack_tokens);
  const auto rows = static_cast<size_t>(row_of.back()) + 1;
  Batch batch;
  batch.decoder_input.lengths.assign(rows, 0);
  batch.decoder_input.segments.resize(rows);
  for (size_t i = 0; i < examples.size(); ++i) {
    const auto row = static_cast<size_t>(row_of[i]);
    batch.decoder_input.lengths[row] += lengths[i];
    batch.decoder_input.segments[row].push_back(lengths[i]);
  }
  const int64_t width = *std::max_element(batch.decoder_input.lengths.begin(), batch.decoder_input.lengths.end());
  std::vector<int64_t> inputs(rows * static_cast<size_t>(width), model.pad);
  std::vector<int64_t> labels, positions;
  std::vector<int64_t> filled(rows, 0);
  for (size_t i = 0; i < examples.size(); ++i) {
    const auto row = static_cast<size_t>(row_of[i]);
    const int64_t begin = row_of[i] * width + filled[row];
    const JoinedExample joined = joined_example(examples[i], model.decoder_start);
    std::copy(joined.inputs.begin(), joined.inputs.end(), inputs.begin() + begin);
    for (size_t j = 0; j < joined.labels.size(); ++j) {
      labels.push_back(joined.labels[j]);
      positions.push_back(begin + joined.first_label + static_cast<int64_t>(j));
    }
    filled[row] += lengths[i];
  }
  if (rows == examples.size()) batch.decoder_input.segments.clear();
  batch.decoder_input.tokens = to_tensor(inputs, {static_cast<int64_t>(rows), width}).to(model.device);  // [B,T]
  const auto count = static_cast<int64_t>(labels.size());
  batch.labels = to_tensor(labels, {count}).to(model.device);        // [P]
  batch.positions = to_tensor(positions, {count}).to(model.device);  // [P]
  batch.places = std::move(positions);
  return batch;
}

// Puts source and target in separate rows.
Batch separate_batch(std::span<const ExampleTokens> examples, const model::ModelInfo& model) {
  std::vector<std::span<const int32_t>> sources, targets;
  for (const ExampleTokens& example : examples) {
    sources.push_back(example.source);
    targets.push_back(example.target);
  }
  const data::PaddedRows source = data::pad_rows(sources, model.pad);
  const data::PaddedRows target = data::pad_rows(targets, model.pad);
  const int64_t width = std::max<int64_t>(target.width, 1);

  std::vector<int64_t> labels, positions;
  std::vector<int64_t> inputs(static_cast<size_t>(target.rows * width), model.pad);
  for (int64_t row = 0; row < target.rows; ++row) {
    inputs[static_cast<size_t>(row * width)] = model.decoder_start;
    for (int64_t t = 0; t < target.lengths[static_cast<size_t>(row)]; ++t) {
      const int64_t token = target.tokens[static_cast<size_t>(row * target.width + t)];
      labels.push_back(token);
      positions.push_back(row * width + t);
      if (t + 1 < width) inputs[static_cast<size_t>(row * width + t + 1)] = token;
    }
  }

  Batch batch;
  batch.source.tokens = to_tensor(source.tokens, {source.rows, source.width}).to(model.device);  // [B,S]
  batch.source.lengths = source.lengths;
  batch.decoder_input.tokens = to_tensor(inputs, {target.rows, width}).to(model.device);  // [B,T]
  for (const int64_t length : target.lengths) batch.decoder_input.lengths.push_back(std::max<int64_t>(length, 1));
  const auto count = static_cast<int64_t>(labels.size());
  batch.labels = to_tensor(labels, {count}).to(model.device);        // [P]
  batch.positions = to_tensor(positions, {count}).to(model.device);  // [P]
  batch.places = std::move(positions);
  return batch;
}

}  // namespace

Batch make_batch(std::span<const ExampleTokens> examples, const model::ModelInfo& model, int64_t pack_tokens) {
  return model.encoder_decoder ? separate_batch(examples, model) : joined_batch(examples, model, pack_tokens);
}

Batch make_batch(const data::Corpus& corpus, const std::vector<int64_t>& examples, const model::ModelInfo& model,
                 int64_t pack_tokens) {
  std::vector<ExampleTokens> tokens;
  for (const int64_t example : examples) tokens.push_back({corpus.source(example), corpus.target(example)});
  Batch batch = make_batch(tokens, model, pack_tokens);
  batch.examples = examples;
  return batch;
}

}  // namespace draftsmith::train
