// A recipe: a TOML file that lists stages. Reading, overlaying --set, resolving references between stages.
//
//   name = "quickstart"
//   include = { recipe = "multi30k_bild.toml", until = "aligned" }  # its stages, as it makes them itself, come first
//   [defaults.train]                  # options of every stage of that kind that does not set them itself
//   training = { schedule = { name = "cosine", warmup = "4 %" } }
//   [tokenizer]                       # a stage, named by its table
//   kind = "tokenizer"
//   input = ["@language/train.source"]  # "@stage/path" is a file of another stage, "$DATA/..." lies in the data folder
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/toml.h"
#include "recipes/stage.h"

namespace draftsmith::recipes {

struct RecipeStage {
  std::string name;
  const StageKind* kind = nullptr;
  toml::table table;                  // its options, without `kind`; references unresolved
  CheckedOptions checked{};           // the same, read
  std::vector<std::string> inputs{};  // stages it refers to, in order of first use
  std::vector<std::string> files{};   // other files and folders it reads, after "$DATA" was replaced
};

struct Recipe {
  std::filesystem::path file{};
  std::string name{};
  std::vector<RecipeStage> stages{};  // in the order of the file, included ones first
};

// Reads and checks a recipe; every error at once (UserError). `overrides` are "stage.key=value"; those of `defaults`
// are for the included recipe too.
Recipe load_recipe(const std::filesystem::path& file, const std::vector<std::string>& overrides);

// True when a TOML file has the form of a recipe (some table has a `kind`), as opposed to an evaluation suite.
bool is_recipe(const toml::table& table);

// The folder that "$DATA" stands for: the environment's DRAFTSMITH_DATA, else ../shared/data.
std::filesystem::path data_folder();

// The stage's table with the "@stage/path" and "$DATA/path" of its paths replaced by paths, references under `work`.
toml::table resolve_references(const RecipeStage& stage, const std::filesystem::path& work);

}  // namespace draftsmith::recipes
