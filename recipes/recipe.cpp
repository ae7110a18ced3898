#include "recipes/recipe.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>

#include "base/error.h"
#include "base/options.h"
#include "data/datasets/datasets.h"

namespace draftsmith::recipes {
namespace {

// Top-level tables that are not stages.
constexpr const char* kDefaults = "defaults";
constexpr const char* kInclude = "include";

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

// File of a recipe: itself, or one that it includes.
struct RecipeFile {
  std::filesystem::path identity;   // canonical
  std::filesystem::path path;       // as given, for messages
  std::vector<std::string> stages;  // stages up to `until`, in the order of the file
  std::string until;
  bool needed;                           // only stages count that other stages need
  std::vector<std::string> overrides{};  // "stage.key=value"; of later stages they are errors

  // Parses the file with its overrides. A copied node forgets its line, so each stage is moved out of a separate parse.
  toml::table parse(Problems& problems) const {
    toml::table root = load_toml(path);
    root.insert(kDefaults, toml::table{});  // which overrides of all files may name; one that is there stays
    apply_overlays(root, overrides, problems);
    return root;
  }
};

// Removes the stages after `last`. Returns false if `last` is not a stage of the file.
bool drop_behind(const std::string& last, std::vector<std::string>& stages) {
  const auto found = std::find(stages.begin(), stages.end(), last);
  if (found == stages.end()) return false;
  stages.erase(found + 1, stages.end());
  return true;
}

// Adds a file. One that two recipes include contributes its stages once: as many as the longer of the two takes.
void add_once(RecipeFile file, std::vector<RecipeFile>& files) {
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
    problems.add({location_of(*include), "`include` names recipes by tables",
                  "{ recipe = \"other.toml\", until = \"stage\" }, or a list of such", "", ""});
  }
  return tables;
}

// Adds a part of the file and the files that it includes, innermost first. Included files keep their own defaults, so
// that their stages are the same as when they run alone. Errors: UserError for a file that cannot be read.
void find_files(const std::filesystem::path& file, const IncludeOptions& part, std::vector<std::filesystem::path> outer,
                std::vector<RecipeFile>& files, Problems& problems) {
  const toml::table root = load_toml(file);
  const auto path = std::filesystem::weakly_canonical(file);
  if (std::find(outer.begin(), outer.end(), path) != outer.end()) {
    problems.add(
        {file.string(), "recipes include one another", "a recipe that is not yet being read", file.string(), ""});
    return;
  }
  outer.push_back(path);
  for (const toml::table* table : include_tables(root, problems)) {
    auto include = parse_options<IncludeOptions>(*table, kInclude, problems);
    include.needed = include.needed || part.needed;
    if (!include.recipe.empty()) find_files(file.parent_path() / include.recipe, include, outer, files, problems);
  }
  RecipeFile found{path, file, stage_names(root), part.until, part.needed};
  if (!part.until.empty() && !drop_behind(part.until, found.stages)) {
    problems.add({file.string(), "the included recipe has no such stage of its own", "one of its stages for `until`",
                  part.until, ""});
  }
  add_once(std::move(found), files);
}

// Returns the overrides that apply to files[index]: to the file with the stage that an override names, those of
// `defaults` to all files, any other to the recipe itself, which is the last.
std::vector<std::string> overrides_for(const std::vector<RecipeFile>& files, size_t index,
                                       const std::vector<std::string>& overrides) {
  std::vector<std::string> mine;
  for (const std::string& text : overrides) {
    const std::string key = text.substr(0, text.find_first_of(".="));
    const auto owner = std::find_if(files.begin(), files.end(), [&](const RecipeFile& file) {
      return std::find(file.stages.begin(), file.stages.end(), key) != file.stages.end();
    });
    const auto place = owner == files.end() ? files.size() - 1 : static_cast<size_t>(owner - files.begin());
    if (place == index || key == kDefaults) mine.push_back(text);
  }
  return mine;
}

bool is_reference(const std::string& text) {
  return text.size() > 1 && text.front() == '@';
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
  const std::string target = text.substr(1, text.find('/') - 1);
  const bool known = std::any_of(earlier.begin(), earlier.end(), [&](const auto& s) { return s.name == target; });
  if (!known) {
    const std::string near = nearest(target, from_each(earlier, &RecipeStage::name));
    problems.add({where, "reference to a stage that does not come before this one",
                  "@stage/path with a stage listed above", text, near.empty() ? "" : "did you mean @" + near + "?"});
  } else if (std::find(stage.inputs.begin(), stage.inputs.end(), target) == stage.inputs.end()) {
    stage.inputs.push_back(target);
  }
}

bool is_path(const RecipeStage& stage, const std::string& text) {
  return std::find(stage.checked.paths.begin(), stage.checked.paths.end(), text) != stage.checked.paths.end();
}

void check_file(const std::string& text, const std::string& where, RecipeStage& stage, Problems& problems) {
  const std::string path = data::real_path(text);
  std::error_code unknown;  // as of a loop of links
  if (!std::filesystem::exists(path, unknown)) problems.add(data::missing_path(text, where));
  stage.files.push_back(text);
  constexpr std::array<const char*, 5> kOfTokenizers = {"tokenizer.json", ".model", ".spm", "vocab.json", "merges.txt"};
  if (std::ranges::none_of(kOfTokenizers, [&](const char* end) { return path.ends_with(end); })) return;
  for (const char* read_with_it :
       {"added_tokens.json", "chat_template.jinja", "config.json", "generation_config.json", "merges.txt",
        "special_tokens_map.json", "target.spm", "tokenizer.model", "tokenizer_config.json", "vocab.json"}) {
    const std::string beside = std::filesystem::path(text).parent_path() / read_with_it;
    if (beside != text && std::filesystem::exists(data::real_path(beside), unknown)) stage.files.push_back(beside);
  }
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

// Refuses names that are no names of a folder.
void check_name(const std::string& name, const std::string& where, Problems& problems) {
  const bool usable = std::ranges::none_of(name, [](char c) { return c == '/' || (c >= 0 && c < ' '); });
  if (usable && !name.empty() && name != "." && name != "..") return;
  problems.add({where, "names a folder, and cannot", "a name without '/' and control characters", brief(name), ""});
}

// Checks the keys of a recipe that are not stages: name, include and defaults; and the stages' names.
void check_top_level(const toml::table& root, Problems& problems) {
  if (const auto name = root["name"].value<std::string>()) check_name(*name, location_of(*root.get("name")), problems);
  for (const std::string& name : stage_names(root)) check_name(name, location_of(*root.get(name)), problems);
  for (auto&& [key, value] : root) {
    if (value.is_table() || (key.str() == "name" && value.is_string()) || key.str() == kInclude) continue;
    problems.add({location_of(value), "unknown key '" + std::string(key.str()) + "'",
                  "a text as name, a table for each stage, include, or defaults for a kind of stages", "", ""});
  }
  const toml::table* defaults = root[kDefaults].as_table();
  if (defaults == nullptr) return;
  for (auto&& [key, value] : *defaults) {
    if (stage_kinds().find(std::string(key.str())) != nullptr && value.is_table()) continue;
    const std::string near = nearest(std::string(key.str()), stage_kinds().names());
    problems.add({location_of(value), "defaults for an unknown kind of stages", "[defaults.KIND]",
                  std::string(key.str()), near.empty() ? "" : "did you mean \"" + near + "\"?"});
  }
}

// Adds the stages that a recipe's file contributes.
void add_stages(const RecipeFile& source, std::vector<RecipeStage>& stages, Problems& problems) {
  for (const std::string& name : source.stages) {
    Problems reported_before;
    toml::table own = source.parse(reported_before);
    if (std::any_of(stages.begin(), stages.end(), [&](const RecipeStage& stage) { return stage.name == name; })) {
      problems.add({location_of(*own[name].as_table()), "an included recipe has a stage of this name",
                    "another name, or the included stage", name, ""});
      continue;
    }
    RecipeStage stage{.name = name, .kind = kind_of(name, *own[name].as_table(), problems), .table = {}};
    if (stage.kind == nullptr) continue;
    stage.if_needed = source.needed;
    stage.table = std::move(*own[name].as_table());
    stage.table.erase("kind");
    if (toml::table* defaults = own[kDefaults][stage.kind->name].as_table()) fill_in(stage.table, std::move(*defaults));
    // Other kinds have no such keys, which their checks report.
    if (stage.kind->name == "corpus") data::fill_in_dataset_corpus(stage.table, problems);
    if (stage.kind->name == "evaluate") data::fill_in_dataset_tasks(stage.table, problems);
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
  return table.contains(kInclude) || std::any_of(table.begin(), table.end(), [](auto&& entry) {
           const toml::table* inner = entry.second.as_table();
           return inner && inner->contains("kind");
         });
}

Recipe load_recipe(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  Problems problems;
  Recipe recipe;
  std::vector<RecipeFile> files;
  find_files(file, {}, {}, files, problems);
  for (const std::string& text : overrides) {
    if (text.substr(0, text.find_first_of(".=")) != kInclude) continue;
    problems.add({"--set " + text, "what a recipe includes is read before --set", "a key of a stage", "",
                  "change `include` in the file"});
  }
  for (size_t i = 0; i < files.size(); ++i) files[i].overrides = overrides_for(files, i, overrides);
  for (RecipeFile& source : files) {
    const toml::table root = source.parse(problems);
    source.stages = stage_names(root);
    if (!source.until.empty()) drop_behind(source.until, source.stages);
    check_top_level(root, problems);
    add_stages(source, recipe.stages, problems);
    recipe.name = root["name"].value_or(file.stem().string());  // the last file is the recipe itself
  }
  if (recipe.stages.empty() && problems.empty()) {
    problems.add({file.string(), "the recipe has no stage", "tables with a `kind`", "", ""});
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
