#include "infer/session.h"

#include <filesystem>
#include <utility>

#include "base/logging.h"
#include "infer/drafters/model_drafter.h"
#include "infer/drafters/registry.h"
#include "infer/routers.h"
#include "infer/windows/window_rules.h"

namespace draftsmith::infer {

namespace fs = std::filesystem;

namespace {

// Loads the drafter. One that is the target, in its type, is not loaded twice.
SharedDrafter load_drafter_for(const LoadedModel& target, const SessionOptions& options) {
  const DrafterSpec spec = parse_drafter(options.drafter);
  model::LoadOptions load = options.load;
  const at::ScalarType target_type = std::exchange(load.dtype, options.drafter_dtype.value_or(load.dtype));
  if (options.drafter_dtype && !traits_of(spec.kind).is_model) {
    log_warning("{}drafter-dtype has no effect on drafter {}", options.option_prefix, options.drafter);
  }
  const bool target_itself =
      spec.kind == DrafterKind::kModel && fs::exists(spec.path) && fs::equivalent(spec.path, options.target);
  if (target_itself && load.dtype == target_type) return as_drafter(*target.model, nullptr, spec.path);
  return load_drafter(spec, options.target, load);
}

}  // namespace

bool takes_drafter(const DecodeOptions& decoding) {
  return decoding.drafts() && !decoding.drafts_inside();
}

Session::Session(SessionOptions options)
    : options_(std::move(options)), target_(load_model_directory(options_.target, options_.load, options_.languages)) {}

Session::~Session() = default;
Session::Session(Session&&) noexcept = default;

SharedDrafter Session::drafter_of(const DecodeOptions& decoding) {
  if (options_.drafter.empty() || !takes_drafter(decoding)) return nullptr;
  if (drafter_ == nullptr) drafter_ = load_drafter_for(target_, options_);
  return drafter_;
}

const model::RouterPredictor* Session::router_of(const DecodeOptions& decoding, const LoadedDrafter* drafter) {
  if (decoding.router.empty() || !decoding.drafts() || !window_traits(decoding).asks_router) return nullptr;
  auto& router = routers_[decoding.router.string()];
  if (router == nullptr) {
    router = load_router(decoding.router, drafter, options_.option_prefix + "router", options_.drafter);
  }
  return router.get();
}

const model::Exits* Session::exits_of(const DecodeOptions& decoding, const LoadedDrafter* drafter) {
  const bool exit_drafts = drafter != nullptr && drafter->inside_target() > 0;
  if (!decoding.drafts_inside() && !decoding.decodes_inside() && !exit_drafts) {
    if (decoding.exits.empty()) return nullptr;
    log_warning("{}exits has no effect on method {}", options_.option_prefix, decoding.method);
    return nullptr;
  }
  const std::string key = decoding.exits.string();
  auto found = exits_.find(key);
  if (found == exits_.end()) {
    found = exits_.emplace(key, find_exits(options_.target, *target_.model, decoding.exits)).first;
  }
  return found->second.get();
}

Generator Session::generator(const DecodeOptions& decoding) {
  GenerationModels models = target_.alone();
  models.drafter = drafter_of(decoding);
  models.router = router_of(decoding, models.drafter.get());
  models.exits = exits_of(decoding, models.drafter.get());
  return Generator(std::move(models), decoding);
}

}  // namespace draftsmith::infer
