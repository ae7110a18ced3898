#include "train/batch.h"

#include "data/batches.h"

namespace draftsmith::train {

namespace {

at::Tensor to_tensor(const std::vector<int64_t>& values, at::IntArrayRef shape) {
  at::Tensor tensor = at::empty(shape, at::kLong);
  std::copy(values.begin(), values.end(), tensor.data_ptr<int64_t>());
  return tensor;
}

}  // namespace

Batch make_batch(const data::Corpus& corpus, const std::vector<int64_t>& examples, const model::ModelInfo& model) {
  const data::PaddedRows source = data::pad_sources(corpus, examples, model.pad);
  const data::PaddedRows target = data::pad_targets(corpus, examples, model.pad);
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
  batch.examples = examples;
  batch.source.tokens = to_tensor(source.tokens, {source.rows, source.width}).to(model.device);  // [B,S]
  batch.source.lengths = source.lengths;
  batch.decoder_input.tokens = to_tensor(inputs, {target.rows, width}).to(model.device);  // [B,T]
  for (const int64_t length : target.lengths) batch.decoder_input.lengths.push_back(std::max<int64_t>(length, 1));
  const auto count = static_cast<int64_t>(labels.size());
  batch.labels = to_tensor(labels, {count}).to(model.device);        // [P]
  batch.positions = to_tensor(positions, {count}).to(model.device);  // [P]
  return batch;
}

}  // namespace draftsmith::train
