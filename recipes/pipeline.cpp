#include "recipes/pipeline.h"

#include <algorithm>

#include <fmt/format.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/files.h"
#include "base/json.h"
#include "base/logging.h"
#include "base/signals.h"
#include "base/timing.h"
#include "data/datasets/datasets.h"
#include "distributed/process_group.h"

namespace draftsmith::recipes {
namespace {

constexpr const char* kDoneName = "DONE";
constexpr const char* kLock = ".lock";

bool is_in(const std::filesystem::path& path, const std::string& part) {
  return path == part || path.string().starts_with(part + "/");
}

std::map<std::string, std::string> hash_files(const std::filesystem::path& directory, const std::string& part) {
  std::map<std::string, std::string> hashes;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file() || !is_in(entry.path(), part)) continue;
    const std::string name = entry.path().lexically_relative(directory).string();
    if (name != kDoneName) hashes[name] = sha256_file(entry.path());
  }
  return hashes;
}

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Done, stage, kind, version, hash, options, inputs, files, finished, seconds)

std::filesystem::path stage_directory(const std::filesystem::path& work, const std::string& name,
                                      const std::string& id) {
  return work / (name + "-" + id.substr(0, 8));
}

void write_done(const std::filesystem::path& directory, Done done) {
  done.files = hash_files(directory, directory);
  write_json(directory / kDoneName, nlohmann::json(done));
}

std::optional<Done> read_done(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / kDoneName;
  if (!std::filesystem::exists(file)) return std::nullopt;
  const nlohmann::json json = load_json(file);
  try {
    return json.get<Done>();
  } catch (const nlohmann::json::exception& error) {
    throw UserError({file.string(), "damaged stage marker", "the DONE file of a finished stage", error.what(),
                     "remove the stage's directory; the recipe then runs the stage again"});
  }
}

std::vector<Problem> verify_done(const std::filesystem::path& directory, const Done& done,
                                 const std::filesystem::path& part) {
  const auto now = hash_files(directory, part);
  std::vector<Problem> problems;
  for (const auto& [name, hash] : done.files) {
    const auto found = now.find(name);
    const std::string where = (directory / name).string();
    if (!is_in(where, part)) continue;
    if (found == now.end()) {
      problems.push_back({where, "file is missing", "sha256 " + hash.substr(0, 16), "", ""});
    } else if (found->second != hash) {
      problems.push_back({where, "file was changed after the stage had finished", "sha256 " + hash.substr(0, 16),
                          "sha256 " + found->second.substr(0, 16), ""});
    }
  }
  for (const auto& [name, hash] : now) {
    if (done.files.contains(name)) continue;
    problems.push_back({(directory / name).string(), "file was added after the stage had finished", "", "", ""});
  }
  return problems;
}

namespace {

// Returns the hash of an input file's content, or of the names and contents of a folder's files. Left out are those of
// other programs (.git, .cache), and folders that recipes work in.
std::string path_hash(const std::filesystem::path& path, RememberedHashes& known) {
  if (!std::filesystem::is_directory(path)) return known.of(path);
  std::map<std::string, std::string> hashes;
  for (auto at = std::filesystem::recursive_directory_iterator(path); at != end(at); ++at) {
    const std::filesystem::path& file = at->path();
    if (file.filename().string().starts_with('.') || std::filesystem::exists(file / kLock)) {
      at.disable_recursion_pending();
    } else if (at->is_regular_file()) {
      hashes[file.lexically_relative(path).string()] = known.of(file);
    }
  }
  // Names need not be UTF-8.
  return sha256(nlohmann::json(hashes).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::filesystem::path unused_name(const std::filesystem::path& directory) {
  for (int64_t i = 1;; ++i) {
    std::filesystem::path candidate = directory.string() + fmt::format(".old{}", i);
    if (!std::filesystem::exists(candidate)) return candidate;
  }
}

// Checks that all processes see one work directory, which the leader has made, on a shared file system if need be.
void require_shared_directory(ProcessGroup& world, const std::filesystem::path& work) {
  const std::filesystem::path mark = work / ".processes";
  const std::string own = fmt::format("{}/{}", now_utc(), ::getpid());
  if (world.leads()) write_file_atomic(mark, own);
  const std::string written = world.from_leader("comparing directories", own);
  const bool seen = std::filesystem::exists(mark) && read_file(mark) == written;
  const auto all = world.gather("comparing directories", seen ? "" : "missing");
  if (world.leads()) std::filesystem::remove(mark);
  if (std::ranges::all_of(all, &std::string::empty)) return;
  throw UserError({work.string(), "the processes do not share this work directory",
                   "one directory that all machines see, by the same name",
                   seen ? "another process sees another directory" : "what process 0 wrote there is missing",
                   "put --work on a shared file system"});
}

// Refuses stages that measure times, if several processes run the recipe.
void require_one_process(const RecipeStage& stage, const ProcessGroup& world) {
  if (world.is_alone() || stage.kind->processes != Processes::kOne) return;
  throw UserError({fmt::format("stage '{}' ({})", stage.name, stage.kind->name),
                   "an evaluation runs in one process, whose times no other may disturb", "one process",
                   fmt::format("{} processes", world.size()),
                   "run the stages before it with --until, then the same command without torchrun"});
}

// Checks that all processes run the same recipe in the same directory, in which the leader has made `work`, and that
// no stage to be run is one of a single process, unless it was finished before.
void require_same_run(const Recipe& recipe, size_t count, const PipelineOptions& options) {
  ProcessGroup& world = *options.execution.world;
  if (world.is_alone()) return;
  world.require_same("the version of draftsmith", version() + " " + git_commit());
  nlohmann::json stages = nlohmann::json::array();
  for (const RecipeStage& stage : recipe.stages) {
    stages.push_back({stage.name, stage.kind->name, stage.checked.options, stage.checked.identity});
  }
  world.require_same("the recipe", sha256(nlohmann::json{stages, options.until, options.fresh}.dump()));
  require_shared_directory(world, options.work);
  for (size_t i = 0; i < count; ++i) {
    if (options.fresh || !read_done(options.work / recipe.stages[i].name)) require_one_process(recipe.stages[i], world);
  }
}

// Removes what AtomicPath left of a killed run.
void remove_leftovers(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (name.starts_with('.') && name.find(".tmp-") != std::string::npos) found.push_back(entry.path());
  }
  for (const auto& path : found) std::filesystem::remove_all(path);
}

// Runs one stage in its directory: in all processes, or in the leader while the others wait. Returns false if it was
// finished before.
bool finish_stage(const RecipeStage& stage, Done done, const PipelineOptions& options,
                  const std::filesystem::path& directory) {
  ProcessGroup& world = *options.execution.world;
  bool finished = false;
  if (world.leads()) {
    make_directories(directory);
    replace_link(options.work / stage.name, directory);
    const auto existing = read_done(directory);
    finished = existing && existing->hash == done.hash;
    if (!finished) remove_leftovers(directory);
  }
  finished = !world.from_leader("preparing stage " + stage.name, finished ? "finished" : "").empty();
  if (finished) return false;
  require_one_process(stage, world);
  const Stopwatch watch;
  const StageContext run{.directory = directory,
                         .identity = done.hash,
                         .execution = options.execution,
                         .options = done.options,
                         .inputs = done.inputs};
  const bool works = world.leads() || stage.kind->processes == Processes::kAll;
  if (works) stage.kind->run(resolve_references(stage, options.work), run);
  world.wait_for_all("stage " + stage.name);
  done.seconds = watch.seconds();
  done.finished = now_utc();
  if (world.leads()) write_done(directory, std::move(done));
  world.wait_for_all("finishing stage " + stage.name);  // hashes of large files take longer than others wait
  return true;
}

size_t stages_to_run(const Recipe& recipe, const std::string& until) {
  if (until.empty()) return recipe.stages.size();
  const std::vector<std::string> names = from_each(recipe.stages, &RecipeStage::name);
  const auto found = std::find(names.begin(), names.end(), until);
  if (found != names.end()) return static_cast<size_t>(found - names.begin()) + 1;
  throw UserError(unknown_name("stage", until, names, "--until"));
}

// Returns what identifies the first `count` stages: options and the hashes of inputs.
std::vector<Done> plan_stages(const Recipe& recipe, size_t count) {
  const LongWork work("no stage was begun");
  std::map<std::string, std::string> hashes;
  RememberedHashes known;
  std::vector<Done> planned;
  for (const RecipeStage& stage : std::span(recipe.stages).first(count)) {
    Done& done = planned.emplace_back();
    done.stage = stage.name;
    done.kind = stage.kind->name;
    done.version = stage.kind->version;
    done.options = stage.checked.options;
    for (const std::string& input : stage.inputs) done.inputs["@" + input] = hashes.at(input);
    for (const std::string& file : stage.files) done.inputs[file] = path_hash(data::real_path(file), known);
    done.hash = hashes[stage.name] = stage_hash(stage, done.inputs);
  }
  return planned;
}

}  // namespace

std::string stage_hash(const RecipeStage& stage, const std::map<std::string, std::string>& input_hashes) {
  // The hash of an input depends on its content, not on its place; the options contain the name in the recipe.
  std::vector<std::string> contents;
  for (const auto& [name, hash] : input_hashes) contents.push_back(hash);
  const nlohmann::json identity = {{"kind", stage.kind->name},
                                   {"version", stage.kind->version},
                                   {"options", stage.checked.identity},
                                   {"inputs", contents}};
  return sha256(identity.dump());
}

std::vector<StageResult> run_recipe(const Recipe& recipe, PipelineOptions options) {
  if (options.work.empty()) options.work = std::filesystem::path("work") / recipe.name;
  const size_t count = stages_to_run(recipe, options.until);
  ProcessGroup& world = *options.execution.world;
  std::optional<FileLock> lock;
  if (world.leads()) {
    make_directories(options.work);
    lock.emplace(options.work / kLock, "--work");
  }
  require_same_run(recipe, count, options);
  const std::vector<Done> planned = plan_stages(recipe, options.fresh ? recipe.stages.size() : count);
  if (options.fresh && world.leads()) {  // all at once, so that an interrupted run goes on without --fresh
    for (const Done& done : planned) {
      const auto old = stage_directory(options.work, done.stage, done.hash);
      if (std::filesystem::exists(old)) std::filesystem::rename(old, unused_name(old));
    }
  }
  std::vector<StageResult> results;
  for (size_t i = 0; i < count; ++i) {
    throw_if_stop_requested(fmt::format("{} of {} stages are finished; run it again to continue", i, count));
    const RecipeStage& stage = recipe.stages[i];
    world.require_same("the input files of stage " + stage.name, planned[i].hash);
    const auto directory = stage_directory(options.work, stage.name, planned[i].hash);
    log_info("[{}/{}] {} ({})", i + 1, count, stage.name, stage.kind->name);
    const bool skipped = !finish_stage(stage, planned[i], options, directory);
    log_info("[{}/{}] {} {}: {}", i + 1, count, stage.name, skipped ? "was finished" : "finished", directory.string());
    results.push_back({.stage = stage.name, .directory = directory, .skipped = skipped});
  }
  return results;
}

}  // namespace draftsmith::recipes
