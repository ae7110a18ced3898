// Directories of exits: exits.json and exits.safetensors.

#include <algorithm>
#include <iterator>
#include <map>
#include <string>

#include <fmt/format.h>

#include "base/files.h"
#include "base/json.h"
#include "base/utf8.h"
#include "model/families/family.h"
#include "model/files/checkpoint.h"
#include "model/files/model_directory.h"
#include "model/files/weight_files.h"
#include "model/files/write_weights.h"
#include "model/models/exits.h"

namespace draftsmith::model {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "draftsmith_exits";
constexpr int64_t kExitsVersion = 1;
constexpr const char* kConfigFile = "exits.json";
constexpr const char* kWeightFile = "exits.safetensors";
constexpr uint64_t kMostConfigBytes = 1'000'000;
constexpr const char* kTrainAgain = "train the exits again, or fetch their directory again";

struct HeadName {
  ExitHead head;
  const char* name;     // in exits.json
  const char* spelled;  // for people
};
constexpr HeadName kHeads[] = {{ExitHead::kShared, "shared", "the model's head"},
                               {ExitHead::kFull, "full", "a full head"},
                               {ExitHead::kLowRank, "low_rank", "a low-rank head"}};

const HeadName& name_of(ExitHead head) {
  return *std::ranges::find(kHeads, head, &HeadName::head);
}

void exit_keys(ConfigKeys& keys, ExitShape& exit) {
  keys.integer("layer", exit.layer, {INT32_MIN, INT32_MAX}, 0);  // check_exits names those outside the model
  std::string head = name_of(exit.head).name;
  keys.text("head", head, "");
  const auto* known = std::ranges::find(kHeads, head, &HeadName::name);
  if (known == std::end(kHeads)) {
    keys.reader().wrong("head", "is not a form of an exit's head", "shared, full or low_rank");
  } else {
    exit.head = known->head;
  }
  keys.integer("rank", exit.rank, {INT32_MIN, INT32_MAX}, 0);
  keys.flag("own_norm", exit.own_norm, false);
}

nlohmann::ordered_json to_json(const ExitConfig& config) {
  auto exits = nlohmann::ordered_json::array();
  for (ExitShape exit : config.exits) {
    ConfigKeys keys(exits.emplace_back(), false);
    exit_keys(keys, exit);
  }
  return {{"format", kFormat},
          {"format_version", kExitsVersion},
          {"trained_as", config.trained_as},
          {"model", {{"name", config.model}, {"sha256", config.model_hash}}},
          {"exits", std::move(exits)}};
}

// Works in pieces, so that a head of hundreds of megabytes needs no second copy.
bool all_finite(const at::Tensor& values) {
  constexpr int64_t kAtOnce = int64_t{1} << 20;
  const auto pieces = values.flatten().split(kAtOnce);
  return std::all_of(pieces.begin(), pieces.end(),
                     [](const at::Tensor& piece) { return at::isfinite(piece).all().item<bool>(); });
}

// Reads the parameters; none without a weight file. `unchanged`: over the mapped file where nothing needs converting.
std::map<std::string, at::Tensor> read_weights(const fs::path& directory, at::TensorOptions options, bool unchanged) {
  if (!fs::exists(directory / kWeightFile)) return {};
  const SafetensorsFile file(directory / kWeightFile);
  std::map<std::string, at::Tensor> parameters;
  Problems problems;
  for (const auto& entry : file.tensors()) {
    const at::Tensor stored = file.stored(entry.first);
    if (!all_finite(stored)) {
      problems.add({file.file().string(), "the tensor " + printable(entry.first) + " holds NaN or infinity", "numbers",
                    "NaN or infinity", kTrainAgain});
    }
    parameters[entry.first] = stored.to(options, false, !unchanged, at::MemoryFormat::Contiguous);
  }
  problems.throw_if_any();
  return parameters;
}

void require_bound(const ExitConfig& config, const fs::path& directory, const fs::path& model_directory) {
  if (config.model_hash.empty()) {
    throw UserError({directory.string(), "these exits are bound to no model yet", "the sha256 of their model",
                     "none: they are of a checkpoint", "use the exits of the finished stage"});
  }
  const std::string hash = model_hash(model_directory);
  if (hash == config.model_hash) return;
  throw UserError({directory.string(), "these exits belong to another model",
                   fmt::format("{} (sha256 {})", printable(config.model), config.model_hash.substr(0, 16)),
                   fmt::format("{} (sha256 {})", model_directory.string(), hash.substr(0, 16)),
                   "use exits that were trained for this model, or train some: a stage of kind heads, or a train stage "
                   "with the option exits"});
}

}  // namespace

fs::path exits_directory(const fs::path& model_directory) {
  return model_directory / "draftsmith" / "exits";
}

bool holds_exits(const fs::path& directory) {
  return fs::is_regular_file(directory / kConfigFile);
}

void save_exits(const fs::path& directory, const Exits& exits) {
  write_new_directory(directory, [&](const fs::path& temporary) {
    std::vector<TensorToStore> tensors;
    for (const auto& [name, value] : exits.parameters()) {
      tensors.push_back({name, value.detach().cpu(), value.scalar_type()});
    }
    if (!tensors.empty()) write_safetensors(temporary / kWeightFile, std::move(tensors));
    write_json(temporary / kConfigFile, to_json(exits.config()));
  });
}

ExitConfig load_exit_config(const fs::path& directory) {
  if (!holds_exits(directory)) {
    throw UserError({directory.string(), "holds no exits", "a directory with exits.json",
                     fs::is_directory(directory) ? "no exits.json" : "no such directory",
                     "exits are trained by a stage of kind heads, or by a train stage with the option exits"});
  }
  const fs::path file = directory / kConfigFile;
  const nlohmann::json root = load_json(file, kMostConfigBytes);
  const std::string where = file.string();
  Problems problems;
  JsonReader values(root, where, problems);
  const std::string format = values.get_string("format", "");
  const int64_t version = values.get_int("format_version", {0, INT32_MAX}, 0);
  problems.throw_if_any();
  if (format != kFormat) {
    throw UserError({where, "does not describe exits", std::string("format ") + kFormat,
                     format.empty() ? "no format" : printable(format), kTrainAgain});
  }
  if (version != kExitsVersion) {
    throw UserError({where, "the exits have another format version", std::to_string(kExitsVersion),
                     std::to_string(version), kTrainAgain});
  }
  ExitConfig config;
  config.trained_as = values.get_string("trained_as", "");
  const nlohmann::json model = root.value("model", nlohmann::json::object());
  JsonReader names(model, where + ": model", problems);
  config.model = names.get_string("name", "");
  config.model_hash = names.get_string("sha256", "");
  const nlohmann::json exits = root.value("exits", nlohmann::json());
  if (!exits.is_array()) problems.add({where, "'exits' is not a list", "a list of exits", brief(exits), kTrainAgain});
  for (size_t i = 0; exits.is_array() && i < exits.size(); ++i) {
    ConfigKeys keys(ConfigReader(exits[i], fmt::format("{}: exits[{}]", where, i), problems));
    exit_keys(keys, config.exits.emplace_back());
  }
  if (!config.model_hash.empty() && !is_hash(config.model_hash)) {
    problems.add(
        {where, "the model's 'sha256' is not a hash", "64 hex digits", printable(config.model_hash), kTrainAgain});
  }
  problems.throw_if_any();
  return config;
}

std::unique_ptr<Exits> load_exits(const fs::path& directory, const fs::path& model_directory,
                                  const TransformerModel& model, bool check_hash) {
  const ExitConfig config = load_exit_config(directory);
  if (check_hash) require_bound(config, directory, model_directory);
  const auto options = at::TensorOptions(model.info().device).dtype(model.info().dtype);
  auto exits = std::make_unique<Exits>(config, model.config(), read_weights(directory, options, model.decoding_only()),
                                       (directory / kWeightFile).string());
  if (model.decoding_only()) exits->pack();
  return exits;
}

std::string describe_exits(const fs::path& directory) {
  const ExitConfig config = load_exit_config(directory);
  const fs::path weights = directory / kWeightFile;
  std::map<std::string, TensorEntry> entries;
  if (fs::exists(weights)) entries = SafetensorsFile(weights).tensors();
  std::string text = fmt::format("exits of {} layers, trained as {}\n", config.exits.size(),
                                 config.trained_as.empty() ? "nothing known" : printable(config.trained_as));
  text += fmt::format("  model          {}, sha256 {}\n", printable(config.model),
                      config.model_hash.empty() ? "not bound" : config.model_hash.substr(0, 16));
  for (const ExitShape& exit : config.exits) {
    int64_t numbers = 0;
    for (const auto& [name, entry] : entries) {
      if (name.starts_with(fmt::format("exit.{}.", exit.layer))) numbers += c10::multiply_integers(entry.shape);
    }
    text += fmt::format("  layer {:<9}{}", exit.layer, name_of(exit.head).spelled);
    if (exit.head == ExitHead::kLowRank) text += fmt::format(" of rank {}", exit.rank);
    text += fmt::format("{}, {} numbers\n", exit.own_norm ? " and a norm of its own" : "", numbers);
  }
  return text;
}

void check_exit_directory(const fs::path& directory, const fs::path& model_directory) {
  const ExitConfig config = load_exit_config(directory);
  if (!model_directory.empty()) require_bound(config, directory, model_directory);
  auto parameters = read_weights(directory, at::kCPU, true);
  if (model_directory.empty()) return;
  Exits(config, read_settings(model_directory).config, std::move(parameters), (directory / kWeightFile).string());
}

}  // namespace draftsmith::model
