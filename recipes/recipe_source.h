// The files that a recipe is made of: its own, and before it those of the recipes that it includes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/toml.h"

namespace draftsmith::recipes {

// Top-level tables that are no stages.
constexpr const char* kDefaults = "defaults";
constexpr const char* kInclude = "include";

// One file, with the overrides ("stage.key=value") that are for it.
class RecipeSource {
 public:
  // Its stages are those up to `until`; empty: all. Adds the problems of the overrides.
  RecipeSource(std::filesystem::path file, std::vector<std::string> overrides, const std::string& until,
               Problems& problems);

  const toml::table& root() const { return root_; }
  // Names of the stages it contributes, in the order of the file.
  const std::vector<std::string>& stages() const { return stages_; }
  // The file anew: a copied node forgets its line, so that each stage is moved out of a parse of its own.
  toml::table parse() const;

 private:
  std::filesystem::path file_;
  std::vector<std::string> overrides_;
  toml::table root_;
  std::vector<std::string> stages_;
};

// A recipe's files, included ones first. Overrides go to the file that has the stage they name, those of `defaults` to
// all, any others to the recipe itself. Included files keep their own defaults, so that their stages are those that
// they make by themselves. Adds a problem for a stage that an included recipe lacks and for recipes that include one
// another. Errors (UserError): files that cannot be read.
std::vector<RecipeSource> recipe_sources(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                                         Problems& problems);

}  // namespace draftsmith::recipes
