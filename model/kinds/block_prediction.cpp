#include "model/kinds/block_prediction.h"

#include <fmt/format.h>

#include "base/device_tensors.h"
#include "base/json.h"
#include "model/families/common.h"
#include "model/transformer/stack.h"

namespace draftsmith::model {

namespace {

constexpr const char* kBlockKey = "draftsmith_block_prediction";

void read_block(ConfigReader& reader, const std::string& /*where*/, TransformerConfig& config, Problems& /*problems*/) {
  const nlohmann::json* object = kind_object(reader, kBlockKey);
  if (object == nullptr) return;
  config.block_attention = reader.within(*object).get_int("block", {1, kMaxPositions});
  if (config.encoder_decoder) {
    reader.wrong(kBlockKey, "is not for encoder-decoder models", "a decoder-only architecture");
  }
}

void write_block(const TransformerConfig& config, nlohmann::ordered_json& config_json) {
  config_json[kBlockKey] = {{"block", config.block_attention}};
}

void check_block_directory(const std::filesystem::path& directory) {
  ModelDirectory(directory, block_prediction_kind());
}

}  // namespace

const ModelKind& block_prediction_kind() {
  static const ModelKind kBlockPrediction = {
      .name = "a model of block prediction",
      .prefix = "DraftsmithBlockPrediction",
      .model_type = "draftsmith_block_prediction",
      .hint = "it predicts blocks of tokens at once: it decodes or drafts, and is trained from random weights",
      .describes = [](const TransformerConfig& config) { return config.block_attention > 0; },
      .read = read_block,
      .write = write_block,
      .check_directory = check_block_directory};
  return kBlockPrediction;
}

TransformerConfig block_prediction_config(TransformerConfig config, int64_t block) {
  Problems problems;
  if (config.encoder_decoder || config.tandem_secondary()) {
    problems.add(
        {.where = "block prediction",
         .what = "is for decoder-only models",
         .expected = "a decoder-only architecture",
         .found = config.encoder_decoder ? "an encoder-decoder (" + config.family + ")" : "a Tandem secondary"});
  }
  if (block < 1) {
    problems.add({.where = "block",
                  .what = "a block has at least one token",
                  .expected = "1 or more",
                  .found = fmt::format("{}", block)});
  }
  problems.throw_if_any();
  config.block_attention = block;
  return config;
}

std::unique_ptr<TransformerModel> load_block_prediction(const std::filesystem::path& directory,
                                                        const LoadOptions& options) {
  return load_model(ModelDirectory(directory, block_prediction_kind()), options);
}

at::Tensor shifted(const at::Tensor& values, const TokenBatch& batch, int64_t distance, double missing) {
  const int64_t tokens = batch.tokens.size(1);
  const at::Tensor place = at::arange(tokens, at::kLong) + distance;            // [T]
  at::Tensor present = place.ge(0).logical_and(place.lt(tokens)).unsqueeze(0);  // [1,T]
  const at::Tensor from = place.clamp(0, tokens - 1);
  if (batch.segments.empty()) {
    present = present & place.unsqueeze(0).lt(at::tensor(batch.lengths, at::kLong).unsqueeze(1));
  } else {
    const at::Tensor segment = segment_index(batch).segment;  // [B,T]
    present = present & segment.index_select(1, from).eq(segment);
  }
  std::vector<int64_t> shape = present.sizes().vec();
  shape.resize(static_cast<size_t>(values.dim()), 1);
  const at::Tensor moved = values.index_select(1, upload(from, values.device()));
  return moved.masked_fill(upload(present.view(shape).logical_not(), values.device()), missing);
}

}  // namespace draftsmith::model
