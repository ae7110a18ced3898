// Router directories: config.json and model.safetensors.

#include <fmt/format.h>

#include "base/json.h"
#include "model/files/model_hash.h"
#include "model/files/new_directory.h"
#include "model/files/safetensors.h"
#include "model/kinds/router.h"

namespace draftsmith::model {

namespace {

namespace fs = std::filesystem;

constexpr const char* kKind = "draftsmith_router";
constexpr int64_t kRouterVersion = 1;

bool is_hash(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Returns whether a router reads a context, by the names of its numbers. Adds a problem for other names.
bool read_context(const nlohmann::json& root, const std::string& file, Problems& problems) {
  const nlohmann::json found = root.contains("context") ? root.at("context") : nlohmann::json();
  if (found == nlohmann::json::array()) return false;
  const nlohmann::json known(router_context_names());
  if (found != known) {
    problems.add({file, "the router reads another context than this program makes", known.dump() + " or []",
                  found.is_null() ? "no 'context'" : printable(found.dump()), "train the router again"});
  }
  return true;
}

RouterConfig read_config(const fs::path& directory) {
  const fs::path file = directory / "config.json";
  const nlohmann::json root = load_json(file);
  Problems problems;
  JsonReader values(root, file.string(), problems);
  const std::string kind = values.get_string("model_type", "");
  if (kind != kKind) {
    throw UserError({file.string(), "is not the config.json of a router", std::string("model_type ") + kKind,
                     kind.empty() ? "no model_type" : printable(kind), "a router is made by a stage of kind router"});
  }
  const int64_t version = values.get_int("format_version", {0, INT32_MAX}, 0);
  if (version != kRouterVersion) {
    throw UserError({file.string(), "the router has another format version", std::to_string(kRouterVersion),
                     std::to_string(version), "train the router again"});
  }
  RouterConfig config;
  config.reads_context = read_context(root, file.string(), problems);
  config.top_k = values.get_int("top_k", {1, kMostRouterTokens});
  config.hidden = values.get_int("hidden", {1, kMostRouterHidden});
  config.width = values.get_int("drafter_width", {1, 1 << 20});
  config.vocabulary = values.get_int("vocabulary", {1, 1 << 24});
  config.embedding_scale = values.get_double("embedding_scale");
  config.drafter = values.get_string("drafter", "");
  config.drafter_hash = values.get_string("drafter_sha256");
  config.threshold = values.get_double("threshold");
  config.max_draft = values.get_int("max_draft", {1, kMostRouterDraft});
  problems.throw_if_any();
  check_router_config(config, file.string(), problems);
  problems.throw_if_any();
  return config;
}

nlohmann::ordered_json to_json(const RouterConfig& config) {
  auto context = nlohmann::ordered_json::array();
  if (config.reads_context) context = router_context_names();
  return {{"architectures", {"DraftsmithRouter"}},
          {"model_type", kKind},
          {"format_version", kRouterVersion},
          {"top_k", config.top_k},
          {"hidden", config.hidden},
          {"drafter_width", config.width},
          {"vocabulary", config.vocabulary},
          {"embedding_scale", config.embedding_scale},
          {"context", std::move(context)},
          {"drafter", config.drafter},
          {"drafter_sha256", config.drafter_hash},
          {"threshold", config.threshold},
          {"max_draft", config.max_draft}};
}

}  // namespace

void check_router_config(const RouterConfig& config, const std::string& where, Problems& problems) {
  const auto check = [&](const char* key, double value, double least, double most) {
    if (value >= least && value <= most) return;
    problems.add({where, std::string("'") + key + "' is out of range", fmt::format("{:g} to {:g}", least, most),
                  fmt::format("{:g}", value), ""});
  };
  check("top_k", static_cast<double>(config.top_k), 1, static_cast<double>(kMostRouterTokens));
  check("top_k", static_cast<double>(config.top_k), 1, static_cast<double>(config.vocabulary));
  check("hidden", static_cast<double>(config.hidden), 1, static_cast<double>(kMostRouterHidden));
  check("embedding_scale", config.embedding_scale, 1e-12, 1e12);
  check("threshold", config.threshold, 0, 2);
  check("max_draft", static_cast<double>(config.max_draft), 1, static_cast<double>(kMostRouterDraft));
  if (!is_hash(config.drafter_hash)) {
    problems.add({where, "'drafter_sha256' is not a hash", "64 hex digits", printable(config.drafter_hash), ""});
  }
}

void save_router(const fs::path& directory, const Router& router) {
  write_new_directory(directory, [&](const fs::path& temporary) {
    std::vector<TensorToStore> tensors;
    for (const auto& [name, value] : router.parameters()) tensors.push_back({name, value.detach().cpu(), at::kFloat});
    write_safetensors(temporary / "model.safetensors", std::move(tensors));
    write_json(temporary / "config.json", to_json(router.config()));
  });
}

Router load_router(const fs::path& directory) {
  if (!fs::is_directory(directory) || !fs::exists(directory / "config.json")) {
    throw UserError({directory.string(), "is not a router directory",
                     "a directory with config.json and model.safetensors",
                     fs::is_directory(directory) ? "no config.json" : "no such directory",
                     "a router is made by a stage of kind router"});
  }
  RouterConfig config = read_config(directory);
  const SafetensorsFile file(directory / "model.safetensors");
  Problems problems;
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, entry] : file.tensors()) shapes[name] = entry.shape;
  check_router_shapes(config, shapes, file.file().string(), problems);
  problems.throw_if_any();
  std::map<std::string, at::Tensor> parameters;
  for (const auto& entry : file.tensors()) parameters[entry.first] = file.read(entry.first, at::kFloat);
  return {std::move(config), std::move(parameters), file.file().string()};
}

bool is_router(const fs::path& directory) {
  if (!fs::is_regular_file(directory / "config.json")) return false;
  try {
    const nlohmann::json root = load_json(directory / "config.json");
    return root.is_object() && root.contains("model_type") && root.at("model_type") == kKind;
  } catch (const UserError&) {
    return false;
  }
}

std::string describe_router(const Router& router) {
  const RouterConfig& config = router.config();
  int64_t numbers = 0;
  for (const auto& entry : router.parameters()) numbers += entry.second.numel();
  std::string text = fmt::format("router: {} numbers, hidden width {}, top {} tokens, {}\n", numbers, config.hidden,
                                 config.top_k, config.reads_context ? "context" : "no context");
  text += fmt::format("  drafter        {} (width {}, vocabulary {}), sha256 {}\n", printable(config.drafter),
                      config.width, config.vocabulary, config.drafter_hash.substr(0, 16));
  return text + fmt::format("  defaults       threshold {:g}, max_draft {}\n", config.threshold, config.max_draft);
}

void require_router_fits(const Router& router, const fs::path& directory, const RouterDrafter& drafter) {
  const RouterConfig& config = router.config();
  const TransformerConfig& found = drafter.model.config();
  Problems problems;
  const std::string where = "router " + directory.string() + ", drafter " + drafter.directory.string();
  const std::string hint = "train a router for this drafter: stages router-data and router";
  const auto compare = [&](const char* what, int64_t wanted, int64_t has) {
    if (wanted == has) return;
    problems.add({where, std::string("the router was trained for a drafter of another ") + what, std::to_string(wanted),
                  std::to_string(has), hint});
  };
  compare("width", config.width, found.width);
  compare("vocabulary", config.vocabulary, found.vocabulary);
  problems.throw_if_any();
  const std::string hash = model_hash(drafter.directory);
  if (hash == config.drafter_hash) return;
  problems.add({where, "the router was trained for another drafter",
                fmt::format("{} (sha256 {})", printable(config.drafter), config.drafter_hash.substr(0, 16)),
                fmt::format("{} (sha256 {})", drafter.directory.string(), hash.substr(0, 16)), hint});
  problems.throw_if_any();
}

}  // namespace draftsmith::model
