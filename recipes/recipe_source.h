// Files of a recipe: first the recipes that it includes, last its own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/toml.h"

namespace draftsmith::recipes {

// Top-level tables that are not stages.
constexpr const char* kDefaults = "defaults";
constexpr const char* kInclude = "include";

// File of a recipe, with its overrides ("stage.key=value").
class RecipeSource {
 public:
  // Takes the stages up to `until`; all if it is empty. Adds problems for wrong overrides.
  RecipeSource(std::filesystem::path file, std::vector<std::string> overrides, const std::string& until, bool needed,
               Problems& problems);

  const toml::table& root() const { return root_; }
  // Returns the names of the stages that the file contributes, in the order of the file.
  const std::vector<std::string>& stages() const { return stages_; }
  // Returns whether only stages count that other stages need.
  bool needed() const { return needed_; }
  // Parses the file again. A copied node forgets its line, so each stage is moved out of a separate parse.
  toml::table parse() const;

 private:
  std::filesystem::path file_;
  std::vector<std::string> overrides_;
  toml::table root_;
  std::vector<std::string> stages_;
  bool needed_;
};

// Returns a recipe's files, first the included ones. An override applies to the file with the stage that it names, an
// override of `defaults` to all files, any other to the recipe itself. Included files keep their own defaults, so their
// stages are the same as when they run alone. A file that is included twice comes once, with the longer list of stages,
// and only its needed ones if both say so. Adds a problem for an unknown stage of an included recipe, and for recipes
// that include one another. Errors: UserError for a file that cannot be read.
std::vector<RecipeSource> recipe_sources(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                                         Problems& problems);

}  // namespace draftsmith::recipes
