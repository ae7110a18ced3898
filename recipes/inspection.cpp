#include "recipes/inspection.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/files.h"
#include "base/json.h"
#include "base/table.h"
#include "data/corpus/corpus.h"
#include "data/hdf5/hdf5.h"
#include "data/ngrams/ngram_table.h"
#include "data/router/router_data.h"
#include "data/teacher/teacher_cache.h"
#include "data/tokenizers/tokenizer.h"
#include "evaluate/results/results.h"
#include "model/files/model_directory.h"
#include "model/models/deep_tandem.h"
#include "model/models/exits.h"
#include "model/models/language_models.h"
#include "model/models/router.h"
#include "model/transformer/parameters.h"
#include "recipes/pipeline.h"
#include "train/router/router_training.h"

namespace draftsmith::recipes {
namespace {

namespace fs = std::filesystem;

// Returns how many tensors have which stored type.
std::string stored_types(const model::ModelDirectory& model) {
  std::map<std::string, int64_t> counts;
  for (const auto& [parameter, tensor] : model.parameters()) {
    if (tensor.part == 0) ++counts[model.weights().entry(tensor.name).dtype];
  }
  std::string types;
  for (const auto& [type, tensors] : counts) {
    types += fmt::format("{}{} x {}", types.empty() ? "" : ", ", tensors, type);
  }
  return types;
}

// Returns the line about another model that this one reads.
std::string describe_companion(const char* role, const std::optional<model::CompanionRecord>& companion) {
  if (!companion) return fmt::format("  {:<15}not named\n", role);
  return fmt::format("  {:<15}{}, sha256 {}\n", role, companion->path, companion->hash.substr(0, 16));
}

std::string describe_tandem(const model::ModelDirectory& model) {
  const model::TandemShape& tandem = model.config().tandem;
  std::string text = fmt::format("  Tandem         reads layers {} of a primary of {} layers, width {}\n",
                                 fmt::join(tandem.layer_map, ", "), tandem.primary_layers, tandem.primary_width);
  return text + fmt::format("  block          trained with {} tokens (any number decodes)\n", tandem.block);
}

std::string describe_shape(const model::ModelDirectory& model) {
  const auto& c = model.config();
  std::string text = fmt::format("  parameters     {} ({})\n", model::count_numbers(c), stored_types(model));
  text += fmt::format("  layers         {} encoder, {} decoder\n", c.encoder_layers, c.decoder_layers);
  text += fmt::format("  width          {}, {} heads of {}, feed-forward {}{}\n", c.width, c.heads, c.head_width,
                      c.ff_width, c.gated ? ", gated" : "");
  text += fmt::format("  vocabulary     {}, head {}\n", c.vocabulary,
                      c.reads_features() && !c.own_head() ? "its target's"
                      : c.own_head()                      ? "untied"
                                                          : "tied to the embedding");
  if (!c.draft_vocabulary.ids.empty()) {
    text += fmt::format("  pruned to      {} of these ids (d2t, t2d); id {} stands in for the others\n",
                        c.vocabulary_rows(), c.draft_vocabulary.stand_in);
  }
  for (const auto& file : model.weights().files()) {
    text += fmt::format("  {}: {}\n", file->file().lexically_relative(model.path()).string(),
                        human_bytes(fs::file_size(file->file())));
  }
  return text;
}

std::string describe_deep_tandem(const fs::path& directory) {
  const auto parts = model::open_deep_tandem(directory);
  const auto& large = parts.large.config();
  const auto& small = parts.small.config();
  std::string text = fmt::format("deep Tandem of family {}, {} parameters, blocks of {} tokens\n", small.family,
                                 model::count_numbers(large) + model::count_numbers(small), large.block_attention);
  text += "large part (sketches of the next block)\n" + describe_shape(parts.large);
  return text + "small part (predicts)\n" + describe_shape(parts.small);
}

std::string describe_model_directory(const fs::path& directory) {
  const model::ModelKind& kind = model::kind_of_directory(directory);
  if (kind == model::deep_tandem_kind()) return describe_deep_tandem(directory);
  const model::ModelDirectory model(directory, kind);
  const auto& config = model.config();
  std::string text =
      fmt::format("model of family {} ({}{})\n", config.family, kind.prefix, model.family().architecture);
  text += describe_shape(model);
  if (config.tandem_secondary()) text += describe_tandem(model);
  if (config.reads_features()) {
    const model::FeatureShape& shape = config.features;
    text += fmt::format("  features       reads layers {} of a target of {} layers; {} steps were unrolled{}\n",
                        fmt::join(shape.layers, ", "), shape.target_layers, shape.unrolled,
                        shape.block ? fmt::format(", masked, Markov rank {}", shape.markov_rank) : "");
  }
  if (config.shares_encoder()) {
    text += fmt::format("  shared encoder reads its target's states, width {}\n", config.shared_encoder_width);
  }
  if (kind.companion != nullptr) text += describe_companion(kind.companion->role, model.companion());
  if (config.block_attention > 0) {
    text += fmt::format("  predicts       blocks of {} tokens at once\n", config.block_attention);
  }
  try {
    if (const fs::path tokenizer = data::tokenizer_file(directory); !tokenizer.empty()) {
      text += fmt::format("  tokenizer      {}, sha256 {}\n", tokenizer.filename().string(),
                          sha256_file(tokenizer).substr(0, 16));
    }
  } catch (const UserError& error) {
    text += fmt::format("  tokenizer      unreadable: {}\n", error.problems().front().what);
  }
  const fs::path exits = model::exits_directory(directory);
  return fs::exists(exits) ? text + model::describe_exits(exits) : text;
}

// Opens and checks all parts of a model. The model that a Tandem secondary, or a drafter with a shared encoder, reads
// must have the recorded hash; exits must belong to this model. Errors: UserError.
void check_model_directory(const fs::path& directory) {
  model::check_model_directory(directory);
  const fs::path exits = model::exits_directory(directory);
  if (fs::exists(exits)) model::check_exit_directory(exits, directory);
}

// Checks a directory of exits. Exits inside a model's directory must belong to that model. Errors: UserError.
void check_exits(const fs::path& directory) {
  const fs::path whole = fs::canonical(directory);
  const fs::path model = whole.parent_path().parent_path();
  const bool inside = whole == model::exits_directory(model) && fs::exists(model / "config.json");
  model::check_exit_directory(directory, inside ? model : fs::path());
}

// Includes the report of the router's training if it lies beside the router.
std::string inspect_router(const fs::path& directory) {
  std::string text = model::describe_router(model::load_router(directory));
  const fs::path report = fs::canonical(directory).parent_path() / "router_report.json";
  if (fs::exists(report)) text += train::router_report_text(load_json(report), report.string());
  return text;
}

std::string inspect_results(const fs::path& file) {
  const evaluate::Results results = evaluate::load_results(file);
  std::string text = fmt::format("results of suite '{}'\n", results.suite);
  for (const auto& task : results.tasks) {
    text += fmt::format("  task {}: {} runs\n", task.name, task.settings.size());
  }
  return text;
}

// A kind of file or directory that stages and commands write.
struct Kind {
  const char* part;  // its name in a stage's directory; of a damaged part it alone gives the kind
  bool is_file;
  bool (*is)(const fs::path&);               // asked in the order of the list
  std::string (*describe)(const fs::path&);  // fails if the path is damaged
  void (*check)(const fs::path&) = nullptr;  // of kinds whose description does not read everything
};

template <const data::Hdf5Format& kFormat>
bool has_format(const fs::path& path) {
  return data::has_hdf5_format(path, kFormat);
}

const std::vector<Kind>& kinds() {
  const auto any = [](const fs::path&) { return true; };
  const auto has_config = [](const fs::path& path) { return fs::exists(path / "config.json"); };
  static const std::vector<Kind> kKinds = {
      {"router", false, model::is_router, inspect_router},
      {"model", false, has_config, describe_model_directory, check_model_directory},
      {"exits", false, model::holds_exits, model::describe_exits, check_exits},
      {"results.json", true, [](const fs::path& path) { return path.extension() == ".json"; }, inspect_results},
      {"teacher_logits.h5", true, has_format<data::kTeacherCacheFormat>,
       [](const fs::path& path) { return data::describe_teacher_cache(data::TeacherCache(path).info()); }},
      {"router_data.h5", true, has_format<data::kRouterDataFormat>,
       [](const fs::path& path) { return data::describe_router_data(data::RouterData(path)); }},
      {"ngram.h5", true, has_format<data::kNgramFormat>,
       [](const fs::path& path) { return data::describe_ngram_table(data::NgramTable(path)); }},
      {"corpus.h5", true, any,
       [](const fs::path& path) { return data::describe_corpus(data::Corpus(path), nullptr, 0); }}};
  return kKinds;
}

// Returns the kind of a path; nullptr for stages, work directories and what Draftsmith does not write.
const Kind* find_kind(const fs::path& path) {
  if (fs::exists(path / "DONE")) return nullptr;
  const bool is_file = fs::is_regular_file(path);
  for (const Kind& kind : kinds()) {
    if (kind.is_file == is_file && kind.is(path)) return &kind;
  }
  return nullptr;
}

// Returns the parts of a stage directory that can be described.
std::vector<std::pair<fs::path, const Kind*>> parts_of(const fs::path& stage) {
  std::vector<std::pair<fs::path, const Kind*>> parts;
  for (const Kind& kind : kinds()) {
    if (fs::exists(stage / kind.part)) parts.emplace_back(stage / kind.part, &kind);
  }
  return parts;
}

// Returns whether the pipeline made a directory for a stage, finished or not: NAME-hash8 beside a link NAME.
bool is_stage(const fs::path& directory) {
  if (!fs::is_directory(directory) || fs::is_symlink(directory)) return false;
  if (fs::exists(directory / "DONE")) return true;
  const std::string name = directory.filename().string();
  const size_t dash = name.find_last_of('-');
  return dash != std::string::npos && name.size() == dash + 9 &&
         fs::is_symlink(directory.parent_path() / name.substr(0, dash));
}

bool is_work(const fs::path& path) {
  if (!fs::is_directory(path) || fs::exists(path / "DONE") || find_kind(path) != nullptr) return false;
  return std::any_of(fs::directory_iterator(path), {}, [](const auto& entry) { return is_stage(entry.path()); });
}

Problem unfinished(const fs::path& stage) {
  return {.where = stage.string(),
          .what = "this stage has not finished",
          .expected = "a file DONE, which a stage writes last",
          .hint = "run the recipe again; the stage continues where it stopped"};
}

// Refuses a path that is none of what Draftsmith writes, or an unfinished stage. Errors: UserError.
void require_known(const fs::path& path) {
  if (fs::exists(path / "DONE") || find_kind(path) != nullptr || is_work(path)) return;
  if (fs::is_directory(path) && is_stage(fs::canonical(path))) throw UserError(unfinished(path));
  throw UserError(
      {.where = path.string(),
       .what = fs::exists(path) ? "is not a file or directory that Draftsmith writes" : "does not exist",
       .expected =
           "a stage directory (DONE), a model or router directory (config.json), a directory of exits (exits.json), a "
           "corpus, n-gram table, teacher cache or router data (.h5), a results.json or a work directory"});
}

std::string inspect_stage(const fs::path& directory) {
  const Done done = read_done(directory).value();
  std::string text = fmt::format("stage '{}' (kind {}, version {}), finished {} in {:.1f} s\n", done.stage, done.kind,
                                 done.version, done.finished, done.seconds);
  text += fmt::format("  hash {}\n", done.hash.substr(0, 16));
  for (const auto& [input, hash] : done.inputs) text += fmt::format("  input {} ({})\n", input, hash.substr(0, 8));
  for (const auto& [file, hash] : done.files) {
    if (fs::exists(directory / file))
      text += fmt::format("  {}: {}\n", file, human_bytes(fs::file_size(directory / file)));
  }
  for (const auto& [part, kind] : parts_of(directory))
    text += fmt::format("\n{}: {}", part.filename().string(), kind->describe(part));
  return text;
}

struct WorkStage {
  fs::path directory;
  bool in_use = false;  // whether a link of the work directory leads to the stage
  bool finished = false;
};

// Returns the stage directories of a work directory, first those in use.
std::vector<WorkStage> stages_of(const fs::path& work) {
  std::vector<WorkStage> stages;
  std::set<fs::path> linked;
  for (const auto& entry : fs::directory_iterator(work)) {
    if (entry.is_symlink()) linked.insert(fs::read_symlink(entry.path()).filename());
    if (is_stage(entry.path())) stages.push_back({entry.path(), false, fs::exists(entry.path() / "DONE")});
  }
  for (WorkStage& stage : stages) stage.in_use = linked.contains(stage.directory.filename());
  std::sort(stages.begin(), stages.end(), [](const WorkStage& a, const WorkStage& b) {
    return std::pair(!a.in_use, a.directory) < std::pair(!b.in_use, b.directory);
  });
  return stages;
}

// Returns loss and accuracy of the model that a stage trained; empty texts if it did not validate. Errors: UserError.
std::pair<std::string, std::string> validation_of(const fs::path& stage) {
  const fs::path file = stage / "validation.json";
  if (!fs::exists(file)) return {};
  const nlohmann::json summary = load_json(file);
  const nlohmann::json model = summary.is_object() ? summary.value("model", nlohmann::json()) : summary;
  if (model.is_null()) return {};  // the log had lost it
  Problems problems;
  JsonReader reader(model, file.string(), problems);
  const std::pair measures(fmt::format("{:.4f}", reader.get_double("loss")),
                           fmt::format("{:.4f}", reader.get_double("accuracy")));
  problems.throw_if_any();
  return measures;
}

std::string inspect_work(const fs::path& work) {
  Table table({{"stage", Align::kLeft},
               {"in use", Align::kLeft},
               {"kind", Align::kLeft},
               {"finished", Align::kLeft},
               {"seconds"},
               {"loss"},
               {"accuracy"}});
  for (const WorkStage& stage : stages_of(work)) {
    const std::string name = stage.directory.filename().string();
    const std::string in_use = stage.in_use ? "yes" : "no";
    if (!stage.finished) table.add_row({name, in_use, "", "no", "", "", ""});
    if (!stage.finished) continue;
    const Done done = read_done(stage.directory).value();
    const auto [loss, accuracy] = validation_of(stage.directory);
    table.add_row({name, in_use, done.kind, done.finished, fmt::format("{:.1f}", done.seconds), loss, accuracy});
  }
  return table.text();
}

// Returns the stage directory that contains a path or equals it. Parts of a stage lie at most five levels deep (exits
// in the model of a checkpoint). A checkpoint has a DONE, too, which is not a stage's.
std::optional<fs::path> enclosing_stage(const fs::path& path) {
  fs::path candidate = fs::canonical(path);
  for (int level = 0; level < 6; ++level, candidate = candidate.parent_path()) {
    if (candidate.parent_path().filename() == "checkpoints") continue;
    try {
      if (read_done(candidate)) return candidate;
    } catch (const UserError&) {
      if (level == 0) throw;  // above, a file of that name may be another program's
    }
  }
  return std::nullopt;
}

void add_errors(std::vector<Problem>& problems, const std::function<void()>& check) {
  try {
    check();
  } catch (const UserError& error) {
    problems.insert(problems.end(), error.problems().begin(), error.problems().end());
  }
}

// Adds the problems of a part that is not well formed. To describe a file is to read and to check it.
void check_form(const fs::path& path, const Kind& kind, std::vector<Problem>& problems) {
  add_errors(problems, [&] { kind.check != nullptr ? kind.check(path) : void(kind.describe(path)); });
}

// Adds the problems of a stage or one of its parts: changed files first.
void verify_path(const fs::path& path, std::vector<Problem>& problems) {
  add_errors(problems, [&] { std::ranges::move(changed_files(path), std::back_inserter(problems)); });
  if (const Kind* kind = find_kind(path)) return check_form(path, *kind, problems);
  for (const auto& [part, kind] : parts_of(path)) check_form(part, *kind, problems);
}

void verify_work(const fs::path& work, std::vector<Problem>& problems) {
  for (const WorkStage& stage : stages_of(work)) {
    if (stage.finished) {
      verify_path(stage.directory, problems);
    } else if (stage.in_use) {
      problems.push_back(unfinished(stage.directory));
    }
  }
}

}  // namespace

std::string inspect(const fs::path& path) {
  require_known(path);
  if (is_work(path)) return inspect_work(path);
  if (const auto changed = changed_files(path); !changed.empty()) throw UserError(changed);
  const Kind* kind = find_kind(path);
  return kind != nullptr ? kind->describe(path) : inspect_stage(path);
}

std::vector<Problem> verify(const fs::path& path) {
  require_known(path);
  std::vector<Problem> problems;
  is_work(path) ? verify_work(path, problems) : verify_path(path, problems);
  return problems;
}

std::vector<Problem> changed_files(const fs::path& path) {
  const auto stage = enclosing_stage(path);
  if (!stage) return {};
  std::vector<Problem> changed;
  const std::string whole = fs::canonical(path).string();
  for (Problem problem : verify_done(*stage, read_done(*stage).value(), whole)) {
    problem.where = path.string() + problem.where.substr(whole.size());  // the path as the user wrote it
    changed.push_back(std::move(problem));
  }
  return changed;
}

bool is_recorded(const fs::path& path) {
  return is_work(path) || enclosing_stage(path).has_value();
}

}  // namespace draftsmith::recipes
