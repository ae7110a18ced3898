#include "recipes/recipe_source.h"

#include <algorithm>

#include "base/options.h"

namespace draftsmith::recipes {

namespace {

// Part of another recipe that a recipe includes: all stages, those up to one, or the needed ones of these.
struct IncludeOptions {
  std::filesystem::path recipe;
  std::string until;
  bool needed = false;
  static Fields<IncludeOptions> fields() {
    return Fields<IncludeOptions>("include")
        .add("recipe", &IncludeOptions::recipe, Required{}, "Recipe whose stages come first, relative to this file.")
        .add("until", &IncludeOptions::until, "Last stage to include; absent: all stages.")
        .add("needed", &IncludeOptions::needed,
             "Leave out the stages that no stage of this recipe reads, directly or through others.");
  }
};

// Returns the names of the stages' tables in the order of the file (toml++ sorts them by name).
std::vector<std::string> stage_names(const toml::table& root) {
  std::vector<std::pair<uint32_t, std::string>> found;
  for (auto&& [key, value] : root) {
    if (!value.is_table() || key.str() == kDefaults || key.str() == kInclude) continue;
    found.emplace_back(value.source().begin.line, key.str());
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (auto& [line, name] : found) names.push_back(std::move(name));
  return names;
}

// File of a recipe, before any override.
struct FoundFile {
  std::filesystem::path identity;   // canonical
  std::filesystem::path path;       // as given, for messages
  std::vector<std::string> stages;  // stages up to `until`; overrides of later stages are errors
  std::string until;
  bool needed;
};

// Removes the stages after `last`. Returns false if `last` is not a stage of the file.
bool drop_behind(const std::string& last, std::vector<std::string>& stages) {
  const auto found = std::find(stages.begin(), stages.end(), last);
  if (found == stages.end()) return false;
  stages.erase(found + 1, stages.end());
  return true;
}

// Adds a file. One that two recipes include contributes its stages once: as many as the longer of the two takes.
void add_once(FoundFile file, std::vector<FoundFile>& files) {
  const auto same =
      std::find_if(files.begin(), files.end(), [&](const auto& f) { return f.identity == file.identity; });
  if (same == files.end()) {
    files.push_back(std::move(file));
    return;
  }
  const bool needed = same->needed && file.needed;
  if (file.stages.size() > same->stages.size()) *same = std::move(file);
  same->needed = needed;
}

// Returns the tables of `include`, which is one or an array of them.
std::vector<const toml::table*> include_tables(const toml::table& root, Problems& problems) {
  std::vector<const toml::table*> tables;
  const toml::node* include = root.get(kInclude);
  if (include == nullptr) return tables;
  const toml::array* list = include->as_array();
  if (const toml::table* one = include->as_table()) tables.push_back(one);
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    if (const toml::table* one = list->get(i)->as_table()) tables.push_back(one);
  }
  if (tables.size() != (list == nullptr ? 1 : list->size())) {
    problems.add({.where = location_of(*include),
                  .what = "`include` names recipes by tables",
                  .expected = "{ recipe = \"other.toml\", until = \"stage\" }, or a list of such"});
  }
  return tables;
}

// Adds a part of the file and the files that it includes, innermost first.
void find_files(const std::filesystem::path& file, const IncludeOptions& part, std::vector<std::filesystem::path> outer,
                std::vector<FoundFile>& files, Problems& problems) {
  const toml::table root = load_toml(file);
  const auto path = std::filesystem::weakly_canonical(file);
  if (std::find(outer.begin(), outer.end(), path) != outer.end()) {
    problems.add({.where = file.string(),
                  .what = "recipes include one another",
                  .expected = "a recipe that is not yet being read",
                  .found = file.string()});
    return;
  }
  outer.push_back(path);
  for (const toml::table* table : include_tables(root, problems)) {
    auto include = parse_options<IncludeOptions>(*table, kInclude, problems);
    include.needed = include.needed || part.needed;
    if (!include.recipe.empty()) find_files(file.parent_path() / include.recipe, include, outer, files, problems);
  }
  FoundFile found{path, file, stage_names(root), part.until, part.needed};
  if (!part.until.empty() && !drop_behind(part.until, found.stages)) {
    problems.add({.where = file.string(),
                  .what = "the included recipe has no such stage of its own",
                  .expected = "one of its stages for `until`",
                  .found = part.until});
  }
  add_once(std::move(found), files);
}

bool has_stage(const FoundFile& file, const std::string& name) {
  return std::find(file.stages.begin(), file.stages.end(), name) != file.stages.end();
}

// Returns the overrides that apply to files[index].
std::vector<std::string> overrides_for(const std::vector<FoundFile>& files, size_t index,
                                       const std::vector<std::string>& overrides) {
  std::vector<std::string> mine;
  for (const std::string& text : overrides) {
    const std::string key = text.substr(0, text.find_first_of(".="));
    const auto owner = std::find_if(files.begin(), files.end(), [&](const auto& file) { return has_stage(file, key); });
    const auto place = owner == files.end() ? files.size() - 1 : static_cast<size_t>(owner - files.begin());
    if (place == index || key == kDefaults) mine.push_back(text);
  }
  return mine;
}

}  // namespace

RecipeSource::RecipeSource(std::filesystem::path file, std::vector<std::string> overrides, const std::string& until,
                           bool needed, Problems& problems)
    : file_(std::move(file)), overrides_(std::move(overrides)), root_(load_toml(file_)), needed_(needed) {
  apply_overlays(root_, overrides_, {}, problems);
  stages_ = stage_names(root_);
  if (!until.empty()) drop_behind(until, stages_);
}

toml::table RecipeSource::parse() const {
  toml::table root = load_toml(file_);
  Problems reported_before;
  apply_overlays(root, overrides_, {}, reported_before);
  return root;
}

std::vector<RecipeSource> recipe_sources(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                                         Problems& problems) {
  std::vector<FoundFile> files;
  find_files(file, {}, {}, files, problems);
  std::vector<RecipeSource> sources;
  for (size_t i = 0; i < files.size(); ++i) {
    sources.emplace_back(files[i].path, overrides_for(files, i, overrides), files[i].until, files[i].needed, problems);
  }
  return sources;
}

}  // namespace draftsmith::recipes
