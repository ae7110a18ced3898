#include "recipes/inspection.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "base/files.h"
#include "base/json.h"
#include "base/text_table.h"
#include "data/corpus.h"
#include "model/model_directory.h"
#include "model/weight_files.h"
#include "recipes/done_file.h"

namespace draftsmith::recipes {

namespace {

namespace fs = std::filesystem;

enum class Kind { kStage, kModel, kCorpus, kResults, kWork };

Kind kind_of(const fs::path& path) {
  if (fs::is_regular_file(path)) return path.extension() == ".json" ? Kind::kResults : Kind::kCorpus;
  if (fs::exists(path / "DONE")) return Kind::kStage;
  if (fs::exists(path / "config.json")) return Kind::kModel;
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::directory_iterator(path)) {
      if (entry.is_directory() && fs::exists(entry.path() / "DONE")) return Kind::kWork;
    }
  }
  throw UserError({.where = path.string(),
                   .what = fs::exists(path) ? "is nothing that Draftsmith writes" : "does not exist",
                   .expected = "a stage directory (DONE), a model directory (config.json), a corpus (.h5), a "
                               "results.json or a work directory"});
}

std::string inspect_model(const fs::path& directory) {
  const auto model = model::describe_model(directory);
  const auto& c = model.config;
  std::string text = fmt::format("model of family {} ({})\n", model.family, model.architecture);
  text += fmt::format("  parameters     {} ({})\n", model.parameters, [&] {
    std::string types;
    for (const auto& [type, tensors] : model.dtypes)
      types += fmt::format("{}{} x {}", types.empty() ? "" : ", ", tensors, type);
    return types;
  }());
  text += fmt::format("  layers         {} encoder, {} decoder\n", c.encoder_layers, c.decoder_layers);
  text += fmt::format("  width          {}, {} heads of {}, feed-forward {}{}\n", c.width, c.heads, c.head_width,
                      c.ff_width, c.gated ? ", gated" : "");
  text += fmt::format("  vocabulary     {}, head {}\n", c.vocabulary, c.tied_head ? "tied to the embedding" : "untied");
  for (const auto& [file, bytes] : model.weight_files) text += fmt::format("  {}: {}\n", file, human_bytes(bytes));
  if (!model.tokenizer_file.empty()) {
    text += fmt::format("  tokenizer      {}, sha256 {}\n", model.tokenizer_file, model.tokenizer_hash.substr(0, 16));
  }
  return text;
}

std::string inspect_corpus(const fs::path& file) {
  const data::Corpus corpus(file);
  const auto& info = corpus.info();
  std::string text = fmt::format("corpus of {} examples, {} source and {} target tokens\n", info.examples,
                                 info.source_tokens, info.target_tokens);
  text += fmt::format("  vocabulary {}, tokenizer sha256 {}\n", info.vocabulary, info.tokenizer_hash.substr(0, 16));
  for (const auto& [key, value] : info.provenance) text += fmt::format("  {}: {}\n", key, cut_to_width(value, 80));
  return text;
}

nlohmann::json load_results(const fs::path& file) {
  const nlohmann::json results = load_json(file);
  if (!results.is_object() || !results.contains("tasks") || !results["tasks"].is_array()) {
    throw UserError(
        {.where = file.string(), .what = "is no results.json", .expected = "an object with a list 'tasks'"});
  }
  return results;
}

std::string inspect_results(const fs::path& file) {
  const nlohmann::json results = load_results(file);
  std::string text = fmt::format("results of suite '{}'\n", results.value("suite", ""));
  for (const auto& task : results["tasks"]) {
    text +=
        fmt::format("  task {}: {} runs\n", task.value("name", ""), task.value("runs", nlohmann::json::array()).size());
  }
  return text;
}

// The parts of a stage directory that have a form of their own.
std::vector<fs::path> parts_of(const fs::path& stage) {
  std::vector<fs::path> parts;
  for (const char* name : {"model", "corpus.h5", "results.json"}) {
    if (fs::exists(stage / name)) parts.push_back(stage / name);
  }
  return parts;
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
  for (const fs::path& part : parts_of(directory))
    text += fmt::format("\n{}: {}", part.filename().string(), inspect(part));
  return text;
}

// Stage directories of a work directory, the ones in use first named by their links.
std::vector<fs::path> stages_of(const fs::path& work) {
  std::vector<fs::path> stages;
  for (const auto& entry : fs::directory_iterator(work)) {
    if (entry.is_directory() && !entry.is_symlink() && fs::exists(entry.path() / "DONE"))
      stages.push_back(entry.path());
  }
  std::sort(stages.begin(), stages.end());
  return stages;
}

std::string inspect_work(const fs::path& work) {
  TextTable table({{"stage", Align::kLeft}, {"kind", Align::kLeft}, {"finished", Align::kLeft}, {"seconds"}});
  for (const fs::path& stage : stages_of(work)) {
    const Done done = read_done(stage).value();
    table.add_row({stage.filename().string(), done.kind, done.finished, fmt::format("{:.1f}", done.seconds)});
  }
  return table.str();
}

void add_errors(std::vector<Problem>& problems, const std::function<void()>& check) {
  try {
    check();
  } catch (const UserError& error) {
    problems.insert(problems.end(), error.problems().begin(), error.problems().end());
  }
}

}  // namespace

std::string inspect(const fs::path& path) {
  switch (kind_of(path)) {
    case Kind::kStage:
      return inspect_stage(path);
    case Kind::kModel:
      return inspect_model(path);
    case Kind::kCorpus:
      return inspect_corpus(path);
    case Kind::kResults:
      return inspect_results(path);
    case Kind::kWork:
      break;
  }
  return inspect_work(path);
}

std::vector<Problem> verify(const fs::path& path) {
  std::vector<Problem> problems;
  switch (kind_of(path)) {
    case Kind::kStage: {
      const Done done = read_done(path).value();
      problems = verify_done(path, done);
      for (const fs::path& part : parts_of(path)) {
        const auto inner = verify(part);
        problems.insert(problems.end(), inner.begin(), inner.end());
      }
      break;
    }
    case Kind::kWork:
      for (const fs::path& stage : stages_of(path)) {
        const auto inner = verify(stage);
        problems.insert(problems.end(), inner.begin(), inner.end());
      }
      break;
    case Kind::kModel:
      add_errors(problems, [&] { model::ModelDirectory{path}; });
      break;
    case Kind::kCorpus:
      add_errors(problems, [&] { data::Corpus{path}; });
      break;
    case Kind::kResults:
      add_errors(problems, [&] { load_results(path); });
      break;
  }
  return problems;
}

}  // namespace draftsmith::recipes
