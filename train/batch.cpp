#include "train/batch.h"

#include <algorithm>
#include <array>

#include "base/device_tensors.h"
#include "data/corpus/batches.h"

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
    const JoinedExample joined = joined_example(examples[i], model.decoder_start);
    std::copy(joined.inputs.begin(), joined.inputs.end(), host.inputs.begin() + begin);
    batch.label_counts.push_back(std::ssize(joined.labels));
    for (size_t j = 0; j < joined.labels.size(); ++j) {
      host.labels.push_back(joined.labels[j]);
      batch.places.push_back(begin + joined.first_label + static_cast<int64_t>(j));
    }
    filled[row] += lengths[i];
  }
  if (rows == examples.size()) batch.decoder_input.segments.clear();
  return host;
}

// Puts source and target in separate rows.
HostBatch separate_batch(std::span<const ExampleTokens> examples, const model::ModelInfo& model) {
  std::vector<std::span<const int32_t>> sources, targets;
  for (const ExampleTokens& example : examples) {
    sources.push_back(example.source);
    targets.push_back(example.target);
  }
  data::PaddedRows source = data::pad_rows(sources, model.pad);
  const data::PaddedRows target = data::pad_rows(targets, model.pad);
  const int64_t width = std::max<int64_t>(target.width, 1);

  HostBatch host;
  Batch& batch = host.batch;
  host.source_width = source.width;
  host.width = width;
  host.inputs.assign(static_cast<size_t>(target.rows * width), model.pad);
  for (int64_t row = 0; row < target.rows; ++row) {
    host.inputs[static_cast<size_t>(row * width)] = model.decoder_start;
    for (int64_t t = 0; t < target.lengths[static_cast<size_t>(row)]; ++t) {
      const int64_t token = target.tokens[static_cast<size_t>(row * target.width + t)];
      host.labels.push_back(token);
      batch.places.push_back(row * width + t);
      if (t + 1 < width) host.inputs[static_cast<size_t>(row * width + t + 1)] = token;
    }
  }

  host.source = std::move(source.tokens);
  batch.source.lengths = std::move(source.lengths);
  for (const int64_t length : target.lengths) batch.decoder_input.lengths.push_back(std::max<int64_t>(length, 1));
  batch.label_counts = target.lengths;
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
  return batch;
}

}  // namespace draftsmith::train
