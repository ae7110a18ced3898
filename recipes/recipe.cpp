#include "recipes/recipe.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "data/datasets/datasets.h"
#include "recipes/recipe_source.h"

namespace draftsmith::recipes {

namespace {

constexpr const char* kContinueFrom = "continue_from";

bool is_reference(const std::string& text) {
  return text.size() > 1 && text.front() == '@';
}

std::string referred_stage(const std::string& text) {
  return text.substr(1, text.find('/') - 1);
}

// Copies missing keys of `table` and its nested tables from `defaults`.
void fill_in(toml::table& table, toml::table&& defaults) {
  for (auto&& [key, value] : defaults) {
    toml::node* own = table.get(key);
    if (own == nullptr) {
      value.visit([&, name = std::string(key.str())](auto& node) { table.insert(name, std::move(node)); });
    } else if (own->is_table() && value.is_table()) {
      fill_in(*own->as_table(), std::move(*value.as_table()));
    }
  }
}

// Returns the table's kind, or nullptr with a problem if it is missing or unknown.
const StageKind* kind_of(const std::string& stage, const toml::table& table, Problems& problems) {
  const auto text = table["kind"].value<std::string>();
  const StageKind* kind = text ? stage_kinds().find(*text) : nullptr;
  if (kind) return kind;
  Problem problem = unknown_name("stage kind", text.value_or(""), stage_kinds().names());
  problem.where = location_of(table);
  problem.what = "stage '" + stage + "' has no known kind";
  problem.expected = "kind = " + problem.expected;
  problem.found = text ? "kind = \"" + *text + "\"" : "no `kind`";
  problems.add(problem);
  return nullptr;
}

void check_reference(const std::string& text, const std::string& where, const std::vector<RecipeStage>& earlier,
                     RecipeStage& stage, Problems& problems) {
  const std::string target = referred_stage(text);
  const bool known = std::any_of(earlier.begin(), earlier.end(), [&](const auto& s) { return s.name == target; });
  if (!known) {
    std::vector<std::string> names;
    for (const RecipeStage& s : earlier) names.push_back(s.name);
    const std::string near = nearest(target, names);
    problems.add({.where = where,
                  .what = "reference to a stage that does not come before this one",
                  .expected = "@stage/path with a stage listed above",
                  .found = text,
                  .hint = near.empty() ? "" : "did you mean @" + near + "?"});
  } else if (std::find(stage.inputs.begin(), stage.inputs.end(), target) == stage.inputs.end()) {
    stage.inputs.push_back(target);
  }
}

bool is_path(const RecipeStage& stage, const std::string& text) {
  return std::find(stage.checked.paths.begin(), stage.checked.paths.end(), text) != stage.checked.paths.end();
}

void check_file(const std::string& text, const std::string& where, RecipeStage& stage, Problems& problems) {
  const std::string path = data::real_path(text);
  if (!std::filesystem::exists(path)) problems.add(data::missing_path(text, where));
  stage.files.push_back(path);
}

void collect_inputs(const std::vector<RecipeStage>& earlier, RecipeStage& stage, Problems& problems) {
  for_each_string(stage.table, [&](const toml::value<std::string>& value) {
    if (!is_path(stage, value.get())) return;
    if (is_reference(value.get())) {
      check_reference(value.get(), location_of(value), earlier, stage, problems);
    } else {
      check_file(value.get(), location_of(value), stage, problems);
    }
  });
}

// Checks the keys of a recipe that are not stages: name, include and defaults.
void check_top_level(const toml::table& root, Problems& problems) {
  for (auto&& [key, value] : root) {
    if (value.is_table() || key.str() == "name" || key.str() == kInclude) continue;
    problems.add({.where = location_of(value),
                  .what = "unknown key '" + std::string(key.str()) + "'",
                  .expected = "name, a table for each stage, include, or defaults for a kind of stages"});
  }
  const toml::table* defaults = root[kDefaults].as_table();
  if (defaults == nullptr) return;
  for (auto&& [key, value] : *defaults) {
    if (stage_kinds().find(std::string(key.str())) != nullptr && value.is_table()) continue;
    const std::string near = nearest(std::string(key.str()), stage_kinds().names());
    problems.add({.where = location_of(value),
                  .what = "defaults for an unknown kind of stages",
                  .expected = "[defaults.KIND]",
                  .found = std::string(key.str()),
                  .hint = near.empty() ? "" : "did you mean \"" + near + "\"?"});
  }
}

// Gives a stage with `continue_from = "@stage"` the options of that stage that it does not set itself.
void inherit_continued(RecipeStage& stage, const std::vector<RecipeStage>& earlier, Problems& problems) {
  const auto text = stage.table[kContinueFrom].value<std::string>();
  if (!text || !is_reference(*text)) return;
  const std::string name = referred_stage(*text);
  const auto parent = std::find_if(earlier.begin(), earlier.end(), [&](const auto& s) { return s.name == name; });
  if (parent == earlier.end()) return;  // check_reference() reports it
  if (parent->kind == stage.kind) {
    toml::table options = parent->table;
    options.erase(kContinueFrom);
    return fill_in(stage.table, std::move(options));
  }
  problems.add({.where = location_of(*stage.table.get(kContinueFrom)),
                .what = "a stage continues another of its own kind",
                .expected = "a stage of kind = \"" + stage.kind->name + "\"",
                .found = *text + ", kind = \"" + parent->kind->name + "\""});
}

// Adds the stages that a recipe's file contributes.
void add_stages(const RecipeSource& source, std::vector<RecipeStage>& stages, Problems& problems) {
  for (const std::string& name : source.stages()) {
    toml::table own = source.parse();
    if (std::any_of(stages.begin(), stages.end(), [&](const RecipeStage& stage) { return stage.name == name; })) {
      problems.add({.where = location_of(*own[name].as_table()),
                    .what = "an included recipe has a stage of this name",
                    .expected = "another name, or the included stage",
                    .found = name});
      continue;
    }
    RecipeStage stage{.name = name, .kind = kind_of(name, *own[name].as_table(), problems), .table = {}};
    if (stage.kind == nullptr) continue;
    stage.if_needed = source.needed();
    stage.table = std::move(*own[name].as_table());
    stage.table.erase("kind");
    inherit_continued(stage, stages, problems);
    if (toml::table* defaults = own[kDefaults][stage.kind->name].as_table()) fill_in(stage.table, std::move(*defaults));
    // Other kinds have no such keys, which their checks report.
    if (stage.kind->name == "corpus") data::fill_in_dataset_corpus(stage.table, data::DataPaths::kPortable, problems);
    if (stage.kind->name == "evaluate") data::fill_in_dataset_tasks(stage.table, data::DataPaths::kPortable, problems);
    stage.checked = stage.kind->check(stage.table, name, problems);
    collect_inputs(stages, stage, problems);
    stages.push_back(std::move(stage));
  }
}

// Leaves out stages that are there only if they are needed, and are not. A stage's inputs come before it.
void drop_unneeded(std::vector<RecipeStage>& stages) {
  std::set<std::string> needed;
  std::vector<RecipeStage> kept;
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    if (stage->if_needed && !needed.contains(stage->name)) continue;
    needed.insert(stage->inputs.begin(), stage->inputs.end());
    kept.push_back(std::move(*stage));
  }
  stages.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
}

}  // namespace

bool is_recipe(const toml::table& table) {
  return std::any_of(table.begin(), table.end(), [](auto&& entry) {
    const toml::table* inner = entry.second.as_table();
    return inner && inner->contains("kind");
  });
}

Recipe load_recipe(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  Problems problems;
  Recipe recipe;
  recipe.file = file;
  for (const RecipeSource& source : recipe_sources(file, overrides, problems)) {
    check_top_level(source.root(), problems);
    add_stages(source, recipe.stages, problems);
    recipe.name = source.root()["name"].value_or(file.stem().string());  // the last source is the recipe itself
  }
  if (recipe.stages.empty() && problems.empty()) {
    problems.add({.where = file.string(), .what = "the recipe has no stage", .expected = "tables with a `kind`"});
  }
  problems.throw_if_any();
  drop_unneeded(recipe.stages);
  return recipe;
}

toml::table resolve_references(const RecipeStage& stage, const std::filesystem::path& work) {
  toml::table resolved = stage.table;
  for_each_string(resolved, [&](toml::value<std::string>& value) {
    const std::string text = value.get();
    if (!is_path(stage, text)) return;
    value = is_reference(text) ? (work / text.substr(1)).string() : data::real_path(text);
  });
  return resolved;
}

}  // namespace draftsmith::recipes
