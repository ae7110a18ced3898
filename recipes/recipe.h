// Recipe: a TOML file that lists stages. Reads it, applies --set and resolves references between stages.
//
//   name = "quickstart"
//   include = { recipe = "multi30k.toml", until = "aligned" }  # stages of another recipe come first, or of a list's
//                                                              # recipes; needed = true leaves out unread ones
//   [defaults.train]                  # defaults of options for every stage of that kind
//   training = { schedule = { name = "cosine", warmup = "4 %" } }
//   [tokenizer]                       # a stage, named by its table
//   kind = "tokenizer"
//   input = ["@language/train.source"]  # "@stage/path" is a file of another stage, "$DATA/..." lies in the data folder
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/toml.h"
#include "recipes/stage.h"

namespace draftsmith::recipes {

struct RecipeStage {
  std::string name;
  const StageKind* kind = nullptr;
  toml::table table;                  // options without `kind`, with unresolved references
  CheckedOptions checked{};           // parsed options
  std::vector<std::string> inputs{};  // stages that the options refer to, in order of first use
  bool if_needed = false;             // left out unless another stage reads it
  std::vector<std::string> files{};   // other input files and folders, as in the recipe
};

struct Recipe {
  std::string name{};
  std::vector<RecipeStage> stages{};  // in the order of the file, after included stages
};

// Reads and checks a recipe. `overrides` are "stage.key=value"; overrides of `defaults` apply to included recipes too.
// Errors: a UserError with all problems.
Recipe load_recipe(const std::filesystem::path& file, const std::vector<std::string>& overrides);

// Returns whether a TOML file is a recipe (some table has a `kind`) and not an evaluation suite.
bool is_recipe(const toml::table& table);

// Returns the stage's table with paths in place of "@stage/path" (under `work`) and "$DATA/path".
toml::table resolve_references(const RecipeStage& stage, const std::filesystem::path& work);

}  // namespace draftsmith::recipes
