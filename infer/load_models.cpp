#include "infer/load_models.h"

#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "data/tokenizers/load_tokenizer.h"
#include "model/kinds/tandem.h"

namespace draftsmith::infer {

namespace fs = std::filesystem;

LoadedModel load_evaluated(const fs::path& directory, const model::LoadOptions& options) {
  LoadedModel loaded;
  loaded.directory = directory;
  loaded.model = model::load_model(directory, options);
  loaded.generation = model::load_generation_config(directory);
  if (data::has_tokenizer(directory)) {
    loaded.tokenizer = data::load_tokenizer(directory);
    model::require_vocabulary_fits(loaded.model->config(), loaded.tokenizer->vocabulary(), directory.string());
  }
  return loaded;
}

LoadedModel load_drafter(const DrafterSource& source, const fs::path& target, const model::LoadOptions& options) {
  if (!source.model.empty()) return load_evaluated(source.model, options);
  LoadedModel loaded;
  if (!source.tandem.empty()) {
    loaded.directory = source.tandem;
    loaded.tandem = true;
    loaded.model = model::load_tandem_secondary(source.tandem, target, options);
    return loaded;
  }
  loaded.exit_layer = source.exit;
  loaded.directory = source.ngram;
  loaded.lookup = source.lookup;
  if (!source.ngram.empty()) loaded.ngrams = std::make_unique<data::NgramTable>(source.ngram);
  return loaded;
}

std::unique_ptr<model::Exits> find_exits(const fs::path& directory, const model::TransformerModel& model,
                                         const fs::path& given) {
  const fs::path exits = given.empty() ? model::exits_directory(directory) : given;
  if (given.empty() && !model::holds_exits(exits)) return nullptr;
  return model::load_exits(exits, directory, model);
}

void set_drafter(const LoadedModel& loaded, GenerationModels& models) {
  models.exit_layer = loaded.exit_layer;
  models.ngrams = loaded.ngrams.get();
  models.lookup = loaded.lookup;
  if (loaded.tandem) {
    models.tandem = loaded.model.get();
  } else {
    models.drafter = loaded.model.get();
    models.drafter_tokenizer = loaded.tokenizer.get();
  }
}

std::string fingerprint_of(const fs::path& directory) {
  std::map<std::string, std::string> files;
  const auto add = [&](const fs::directory_entry& entry) {
    if (!entry.is_regular_file()) return;
    files[entry.path().filename()] =
        fmt::format("{}:{}", entry.file_size(), entry.last_write_time().time_since_epoch().count());
  };
  add(fs::directory_entry(directory));
  if (fs::is_directory(directory)) {
    for (const auto& entry : fs::directory_iterator(directory)) add(entry);
  }
  return fmt::format("{} {}", directory.string(), files);
}

}  // namespace draftsmith::infer
