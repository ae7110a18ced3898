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

bool takes_drafter(const DecodeOptions& decoding) {
  return decoding.drafts() && !decoding.drafts_inside();
}

Session::Session(SessionOptions options)
    : options_(std::move(options)), target_(load_model_directory(options_.target, options_.load, options_.languages)) {}

Session::~Session() = default;
Session::Session(Session&&) noexcept = default;

SharedDrafter Session::drafter_of(const DecodeOptions& decoding) {
  if (options_.drafter.empty() || !takes_drafter(decoding)) return nullptr;
  if (drafter_ != nullptr) return drafter_;
  const DrafterSpec spec = parse_drafter(options_.drafter);
  model::LoadOptions load = options_.load;
  const at::ScalarType target_type = std::exchange(load.dtype, options_.drafter_dtype.value_or(load.dtype));
  if (options_.drafter_dtype && !traits_of(spec.kind).is_model) {
    log_warning("{}drafter-dtype has no effect on drafter {}", options_.option_prefix, options_.drafter);
  }
  // A drafter that is the target, in its type, is not loaded twice.
  const bool target_itself =
      spec.kind == DrafterKind::kModel && fs::exists(spec.path) && fs::equivalent(spec.path, options_.target);
  return drafter_ = target_itself && load.dtype == target_type ? as_drafter(*target_.model, nullptr, spec.path)
                                                               : load_drafter(spec, options_.target, load);
}

const model::RouterPredictor* Session::router_of(const DecodeOptions& decoding, const LoadedDrafter* drafter) {
  if (decoding.router.empty() || !decoding.drafts() || !window_traits(decoding).asks_router) return nullptr;
  auto& router = routers_[decoding.router.string()];
  if (router == nullptr) {
    router =
        load_router(decoding.router, drafter, target_.model.get(), options_.option_prefix + "router", options_.drafter);
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
