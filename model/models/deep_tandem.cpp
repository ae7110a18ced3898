#include "model/models/deep_tandem.h"

#include <fmt/format.h>

#include "base/json.h"
#include "model/files/weight_files.h"
#include "model/files/write_weights.h"
#include "model/models/block_models.h"
#include "model/models/tandem.h"
#include "model/transformer/decoder_state.h"
#include "model/transformer/transformer_parts.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProjection = "projection.weight";

// Makes the parts draw different dropout masks.
constexpr uint64_t kSmallDropout = 0x5a11;

// Both parts read the same ids, and config.json holds one vocabulary.
void require_deep_pair(const TransformerConfig& small, const TransformerConfig& large, const PairNames& names) {
  require_tandem_pair(small, large, names);
  if (small.vocabulary == large.vocabulary) return;
  throw UserError({.where = names.own,
                   .what = fmt::format("disagrees with {} about the vocabulary", names.companion),
                   .expected = fmt::format("{}", large.vocabulary),
                   .found = fmt::format("{}", small.vocabulary)});
}

void require_parts(const DeepTandemParts& parts) {
  require_deep_pair(parts.small, parts.large, {"small part", "large part"});
  if (const ModelKind& kind = kind_of(parts.small); kind != ordinary_kind()) {
    throw UserError({.where = "small part",
                     .what = "is not an ordinary model",
                     .expected = ordinary_kind().name,
                     .found = kind.name});
  }
}

TransformerConfig large_config(const DeepTandemParts& parts) {
  require_parts(parts);
  TransformerConfig config = block_prediction_config(parts.large, parts.block);
  config.tied_head = true;  // no weights for a head that nothing reads
  return config;
}

at::Tensor read_projection(const fs::path& directory, const DeepTandemDirectories& parts) {
  const WeightFiles weights(directory);
  const std::vector<int64_t> shape{parts.small.config().width, parts.large.config().width};
  const bool present = weights.contains(kProjection);
  if (!present || weights.entry(kProjection).shape != shape || !weights.stored(kProjection).is_floating_point()) {
    throw UserError(
        {.where = fmt::format("{}: tensor '{}'", directory.string(), kProjection),
         .what = "is not the projection between the two parts",
         .expected = "floating point numbers " + shape_text(shape),
         .found = present ? weights.entry(kProjection).dtype + " " + shape_text(weights.entry(kProjection).shape)
                          : "nothing"});
  }
  return weights.stored(kProjection);
}

}  // namespace

const ModelKind& deep_tandem_kind() {
  static const ModelKind kDeepTandem = {
      .name = "a deep Tandem",
      .prefix = "DraftsmithDeepTandem",
      .model_type = "draftsmith_deep_tandem",
      .hint = "it is a pair of models that work as one, which decodes or drafts, and is trained from random weights"};
  return kDeepTandem;
}

DeepTandemModel::DeepTandemModel(const DeepTandemParts& parts, uint64_t seed)
    : DeepTandemModel(std::make_unique<TransformerModel>(large_config(parts), seed),
                      std::make_unique<TransformerModel>(parts.small, seed + 1),
                      at::zeros({parts.small.width, parts.large.width}, at::kFloat)) {}

DeepTandemModel::DeepTandemModel(std::unique_ptr<TransformerModel> large, std::unique_ptr<TransformerModel> small,
                                 at::Tensor projection)
    : large_(std::move(large)), small_(std::move(small)), projection_(std::move(projection)) {
  if (large_->config().block_attention < 1) {
    throw std::logic_error("the large part of a deep Tandem predicts blocks");
  }
  require_parts({large_->config(), small_->config(), block()});
}

std::map<std::string, at::Tensor> DeepTandemModel::parameters() const {
  std::map<std::string, at::Tensor> all = {{kProjection, projection_}};
  for (const auto& [name, value] : large_->parameters()) all["large." + name] = value;
  for (const auto& [name, value] : small_->parameters()) all["small." + name] = value;
  return all;
}

void DeepTandemModel::requires_grad(bool on) {
  large_->requires_grad(on);
  small_->requires_grad(on);
  projection_.requires_grad_(on);
}

void DeepTandemModel::to(at::Device device, at::ScalarType dtype) {
  const bool gradient = projection_.requires_grad();
  large_->to(device, dtype);
  small_->to(device, dtype);
  projection_ = projection_.detach().to(device, dtype).requires_grad_(gradient);
}

at::Tensor DeepTandemModel::forward(const TokenBatch& tokens, const DropoutContext& dropout) {
  ForwardInput large;
  large.target = tokens;
  const at::Tensor ahead = at::linear(large_->forward(large, dropout).hidden, projection_);  // [B,T,D_S]
  ForwardInput small;
  small.target = tokens;
  small.added = shifted(ahead, tokens, 1 - block(), 0.0);
  DropoutContext own = dropout;
  own.seed ^= kSmallDropout;
  return small_->forward(small, own).hidden;
}

// The text with the sketches that the large part has made of it, and the small part's own state.
class DeepTandemModel::State final : public BlockText {
 public:
  State(const DeepTandemModel& model, int64_t rows, int64_t capacity)
      : BlockText(*model.large_, model.projection_, rows, capacity), small(model.small_->begin(rows, capacity)) {}

  void rollback(std::span<const int64_t> lengths) override {
    BlockText::rollback(lengths);
    small->rollback(lengths);
  }
  void select_rows(std::span<const int64_t> rows) override {
    BlockText::select_rows(rows);
    small->select_rows(rows);
  }

  std::unique_ptr<DecodeState> small;
};

std::unique_ptr<DecodeState> DeepTandemModel::begin(int64_t rows, int64_t capacity) {
  return std::make_unique<State>(*this, rows, capacity);
}

StepOutput DeepTandemModel::step(const StepInput& input, DecodeState& state) {
  const DecodingGuard guard;
  auto& own = dynamic_cast<State&>(state);
  std::vector<int64_t> sketch;  // [B] whose place in the text is γ - 1 tokens before the token's
  for (int64_t b = 0; b < own.rows(); ++b) sketch.push_back(own.length(b) + 1 - block());
  own.append(input.tokens, input.new_tokens);
  auto& caches = dynamic_cast<DecoderState&>(*own.small);
  const StepLayout layout = caches.append(input.new_tokens, input.tokens.size(1));
  const at::Tensor ahead = own.states(sketch, input.new_tokens, input.tokens.size(1));  // [B,L,D_S]
  return small_->run_part({.layers = {0, small_->info().layers},
                           .hidden = small_->embed(input.tokens, layout) + ahead,
                           .logits = input.logits,
                           .hidden_layers = input.hidden_layers},
                          layout, caches);
}

void DeepTandemModel::give_back(std::unique_ptr<DecodeState> state) {
  auto* own = dynamic_cast<State*>(state.get());
  if (own == nullptr) return;
  own->give_back();
  small_->give_back(std::move(own->small));
}

void DeepTandemModel::free_states() {
  large_->free_states();
  small_->free_states();
}

DeepTandemDirectories open_deep_tandem(const fs::path& directory) {
  const ModelKind& found = kind_of_directory(directory);
  if (found == ordinary_kind()) read_settings(directory);  // reports a broken config.json
  require_kind(found, deep_tandem_kind(), directory.string());
  DeepTandemDirectories parts{ModelDirectory(directory / "large", block_prediction_kind()),
                              ModelDirectory(directory / "small")};
  require_deep_pair(parts.small.config(), parts.large.config(),
                    {parts.small.path().string(), parts.large.path().string()});
  read_projection(directory, parts);
  return parts;
}

std::unique_ptr<DeepTandemModel> load_deep_tandem(const fs::path& directory, const LoadOptions& options) {
  const DeepTandemDirectories parts = open_deep_tandem(directory);
  auto small = load_model(parts.small, options);
  small->set_name(directory.string());
  auto large = load_model(parts.large, options);
  const auto states = at::TensorOptions(options.device).dtype(large->info().dtype);
  const at::Tensor projection = read_projection(directory, parts).to(states, false, true);
  return std::make_unique<DeepTandemModel>(std::move(large), std::move(small), projection);
}

void save_deep_tandem(const fs::path& directory, const DeepTandemModel& model, const SaveOptions& options) {
  write_new_directory(directory, [&](const fs::path& temporary) {
    SaveOptions parts = options;
    parts.tokenizer.clear();
    save_model(temporary / "large", model.large(), parts);
    save_model(temporary / "small", model.small(), parts);
    write_weight_files(temporary, {{kProjection, model.projection().detach(), options.dtype}}, options.shard_bytes);
    nlohmann::ordered_json config;
    config["architectures"] = {deep_tandem_kind().prefix};
    config["model_type"] = deep_tandem_kind().model_type;
    config["vocab_size"] = model.info().vocabulary;
    config["draftsmith_deep_tandem"] = {{"block", model.block()}};
    write_json(temporary / "config.json", config);
    if (!options.tokenizer.empty()) write_tokenizer(options.tokenizer, model.small().config(), temporary);
  });
}

}  // namespace draftsmith::model
