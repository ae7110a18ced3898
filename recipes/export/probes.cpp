#include "recipes/export/probes.h"

#include <algorithm>
#include <limits>

#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "base/random.h"
#include "model/files/safetensors.h"

namespace draftsmith::recipes {

namespace {

constexpr const char* kLogits = "logits";
constexpr int64_t kLengths[] = {32, 24, 17, 9};
constexpr int64_t kMostPositions = 8;
constexpr int64_t kMostNumbers = int64_t{1} << 20;  // numbers of logits: 4 MB

// Draws any ids, padding and special ones included, since all have embeddings.
std::vector<int64_t> random_row(int64_t length, int64_t vocabulary, RandomSequence& random) {
  std::vector<int64_t> row;
  for (int64_t t = 0; t < length; ++t) {
    row.push_back(static_cast<int64_t>(random.below(static_cast<uint64_t>(vocabulary))));
  }
  return row;
}

model::TokenBatch batch_of(const std::vector<std::vector<int64_t>>& rows, at::Device device) {
  size_t longest = 1;
  for (const auto& row : rows) longest = std::max(longest, row.size());
  model::TokenBatch batch;
  batch.tokens = at::zeros({static_cast<int64_t>(rows.size()), static_cast<int64_t>(longest)}, at::kLong);  // [B,T]
  for (size_t b = 0; b < rows.size(); ++b) {
    std::copy(rows[b].begin(), rows[b].end(),
              batch.tokens.mutable_data_ptr<int64_t>() + static_cast<int64_t>(b * longest));
    batch.lengths.push_back(static_cast<int64_t>(rows[b].size()));
  }
  batch.tokens = batch.tokens.to(device);
  return batch;
}

bool fit(const std::vector<std::vector<int64_t>>& rows, int64_t shortest, const model::TransformerConfig& config) {
  const int64_t longest = config.max_positions > 0 ? config.max_positions : std::numeric_limits<int64_t>::max();
  return std::all_of(rows.begin(), rows.end(), [&](const auto& row) {
    const auto length = static_cast<int64_t>(row.size());
    return length >= shortest && length <= longest &&
           std::all_of(row.begin(), row.end(), [&](int64_t id) { return id >= 0 && id < config.vocabulary; });
  });
}

}  // namespace

Probes make_probes(const model::TransformerConfig& config) {
  Probes probes;
  RandomSequence random{CounterRandom(1, "export/probes")};
  int64_t shortest = kLengths[0];
  for (int64_t length : kLengths) {
    if (config.max_positions > 0) length = std::min(length, config.max_positions);
    shortest = std::min(shortest, length);
    if (config.encoder_decoder) probes.sources.push_back(random_row(length, config.vocabulary, random));
    probes.targets.push_back(random_row(length, config.vocabulary, random));
    if (config.encoder_decoder) probes.targets.back().front() = config.decoder_start;
  }
  const int64_t rows = std::ssize(probes.targets);
  probes.positions =
      std::clamp<int64_t>(kMostNumbers / (rows * config.vocabulary), 1, std::min(kMostPositions, shortest));
  return probes;
}

at::Tensor probe_logits(model::TransformerModel& model, const Probes& probes) {
  const at::NoGradGuard no_grad;
  const at::Device device = model.info().device;
  model::ForwardInput input;
  if (model.config().encoder_decoder) input.source = batch_of(probes.sources, device);
  input.target = batch_of(probes.targets, device);
  const at::Tensor hidden = model.forward(input).hidden;  // [B,T,D]
  std::vector<at::Tensor> rows;
  for (size_t b = 0; b < probes.targets.size(); ++b) {
    const auto last = static_cast<int64_t>(probes.targets[b].size()) - probes.positions;
    rows.push_back(hidden[static_cast<int64_t>(b)].narrow(0, last, probes.positions));  // [P,D]
  }
  return model.head(at::stack(rows)).to(at::kCPU, at::kFloat).contiguous();  // [B,P,V]
}

double relative_difference(const at::Tensor& found, const at::Tensor& wanted) {
  const double difference = (found.to(at::kDouble) - wanted.to(at::kDouble)).abs().max().item<double>();
  const double largest = wanted.to(at::kDouble).abs().max().item<double>();
  if (!(difference <= std::numeric_limits<double>::max())) return std::numeric_limits<double>::infinity();
  return difference == 0 ? 0 : difference / std::max(largest, std::numeric_limits<double>::min());
}

nlohmann::ordered_json to_json(const Probes& probes) {
  return {{"sources", probes.sources}, {"targets", probes.targets}, {"positions", probes.positions}};
}

Probes probes_from_json(const nlohmann::json& json, const model::TransformerConfig& config, const std::string& where) {
  Probes probes;
  try {
    probes = {.sources = json.at("sources"), .targets = json.at("targets"), .positions = json.at("positions")};
  } catch (const nlohmann::json::exception& error) {
    throw UserError({.where = where, .what = "its probes are damaged", .expected = {}, .found = error.what()});
  }
  const bool sources_fit =
      config.encoder_decoder ? probes.sources.size() == probes.targets.size() : probes.sources.empty();
  if (probes.targets.empty() || probes.positions < 1 || !sources_fit || !fit(probes.sources, 1, config) ||
      !fit(probes.targets, probes.positions, config)) {
    throw UserError({.where = where,
                     .what = "this model cannot read the probes",
                     .expected = "rows of token ids of the model's vocabulary",
                     .hint = "the file or config.json was changed; export the model again"});
  }
  return probes;
}

void write_probe_logits(const std::filesystem::path& file, const at::Tensor& logits) {
  model::write_safetensors(file, {{kLogits, logits, at::kFloat}});
}

at::Tensor read_probe_logits(const std::filesystem::path& file, const std::vector<int64_t>& shape) {
  const model::SafetensorsFile opened(file);
  const auto found = opened.tensors().find(kLogits);
  if (found == opened.tensors().end() || found->second.shape != shape) {
    throw UserError(
        {.where = file.string(),
         .what = "does not contain the logits of the probes",
         .expected = "a tensor 'logits' of shape " + model::shape_text(shape),
         .found = found == opened.tensors().end() ? "no such tensor" : model::shape_text(found->second.shape)});
  }
  return opened.read(kLogits, at::kFloat);
}

}  // namespace draftsmith::recipes
