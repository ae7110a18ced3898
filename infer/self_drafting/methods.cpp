#include "infer/self_drafting/methods.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace draftsmith::infer {
namespace {

int64_t half(const model::ModelInfo& info) {
  return (info.layers + 1) / 2;
}

// Exits that were asked for by name must have one at the layer, which the model's own head would read without a word.
// The last layer is the model's own.
void check_exit_read(const GenerationModels& models, const DecodeOptions& options, int64_t layer, Problems& problems) {
  if (options.exits.empty() || models.exits == nullptr || models.exits->find(layer) != nullptr) return;
  if (layer >= models.target->info().layers) return;
  std::vector<int64_t> layers;
  for (const model::ExitShape& exit : models.exits->config().exits) layers.push_back(exit.layer);
  problems.add({"exits", "there is no exit at the layer that method " + options.method + " reads",
                fmt::format("a layer of {}: {}", options.exits.string(), fmt::join(layers, ", ")),
                "layer " + std::to_string(layer), "leave exits out to read it through the model's own norm and head"});
}

void check_ppd(const GenerationModels& models, const DecodeOptions& options, Problems& problems) {
  const model::ModelInfo& info = models.target->info();
  const int64_t early = ppd_settings(models, options).early_layer;
  const std::string where = "method ppd, model " + info.name;
  if (info.layers < 2) {
    problems.add({where, "predicts from a layer before the last", "a model of at least 2 decoder layers",
                  std::to_string(info.layers), ""});
  } else if (early < half(info) || early >= info.layers) {
    problems.add({where + ", early_layer", "branches run as many layers as are left after the early one, at most half",
                  fmt::format("a layer from {} to {}, the second half of the model's {}", half(info), info.layers - 1,
                              info.layers),
                  std::to_string(early), ""});
  }
  if (options.candidates > info.vocabulary) {
    problems.add({where + ", candidates", "there are fewer tokens than candidates",
                  "at most " + std::to_string(info.vocabulary), std::to_string(options.candidates), ""});
  }
}

}  // namespace

model::TransformerModel* transformer_of(model::LanguageModel& target, const std::string& where, Problems& problems) {
  auto* model = dynamic_cast<model::TransformerModel*>(&target);
  if (model != nullptr) return model;
  problems.add({where, "needs the hidden states of the model's layers", "a transformer", target.info().name, ""});
  return nullptr;
}

model::TransformerModel& inside_model(model::LanguageModel& target) {
  auto* model = dynamic_cast<model::TransformerModel*>(&target);
  if (model == nullptr) throw std::logic_error("layers are read early of transformers alone");
  return *model;
}

int64_t exit_layer_of(const DecodeOptions& options, const model::Exits* exits) {
  if (options.exit_layer) return *options.exit_layer;
  return exits != nullptr && !exits->config().exits.empty() ? exits->config().exits.front().layer : 1;
}

bool check_layers(const GenerationModels& models, const std::string& where, Problems& problems) {
  if (transformer_of(*models.target, where, problems) == nullptr) return false;
  if (models.exits == nullptr) return true;
  const size_t before = problems.list().size();
  model::check_exits(models.exits->config(), inside_model(*models.target).config(), "exits", problems);
  return problems.list().size() == before;
}

void check_inside(const GenerationModels& models, const DecodeOptions& options, Problems& problems) {
  const int64_t exit = options.drafts() && models.drafter != nullptr ? models.drafter->inside_target() : 0;
  if (exit == 0 && !options.decodes_inside()) return;
  if (!check_layers(models, "method " + options.method, problems)) return;
  if (exit > 0) check_exit_read(models, options, exit, problems);
  if (options.method_info().algorithm != Algorithm::kPpd) return;
  check_ppd(models, options, problems);
  check_exit_read(models, options, ppd_settings(models, options).early_layer, problems);
}

PpdSettings ppd_settings(const GenerationModels& models, const DecodeOptions& options) {
  const model::ModelInfo& info = models.target->info();
  PpdSettings settings{half(info), options.candidates};
  if (options.early_layer) {
    settings.early_layer = *options.early_layer;
  } else if (models.exits != nullptr) {
    const auto& exits = models.exits->config().exits;
    const auto late = [&](const model::ExitShape& exit) {
      return exit.layer >= settings.early_layer && exit.layer < info.layers;
    };
    if (const auto found = std::find_if(exits.begin(), exits.end(), late); found != exits.end()) {
      settings.early_layer = found->layer;
    }
  }
  return settings;
}

void decode_inside(const GenerationModels& models, const DecodeOptions& options, const DecodeSettings& settings,
                   RowBatch& batch, PhaseTimer& timer) {
  model::TransformerModel& target = inside_model(*models.target);
  if (options.method_info().algorithm == Algorithm::kCalm) {
    const CalmSettings calm{exit_measures().at(options.exit_measure), options.exit_threshold, options.exit_decay};
    decode_calm(target, models.exits, calm, settings, batch, timer);
  } else {
    decode_ppd(target, models.exits, ppd_settings(models, options), settings, batch, timer);
  }
}

}  // namespace draftsmith::infer
