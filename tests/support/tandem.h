// Loading both models of a Tandem directory.
#pragma once

#include <filesystem>
#include <memory>

#include "model/models/companion.h"
#include "model/models/tandem.h"

namespace draftsmith::model {

struct Tandem {
  std::unique_ptr<TransformerModel> secondary, primary;
};

struct TandemLoadOptions {
  LoadOptions secondary = {}, primary = {};
  std::filesystem::path primary_directory = {};  // empty: the recorded one
};

// Loads the secondary, which checks the primary's hash, and the primary.
inline Tandem load_tandem(const std::filesystem::path& directory, const TandemLoadOptions& options = {}) {
  const auto primary =
      options.primary_directory.empty() ? companion_directory(tandem_kind(), directory) : options.primary_directory;
  return {.secondary = load_with_companion(tandem_kind(), directory, primary, options.secondary),
          .primary = load_model(primary, options.primary)};
}

}  // namespace draftsmith::model
