#include "infer/router_loading.h"

#include "infer/parts.h"

namespace draftsmith::infer {

DrafterSpec parse_router_drafter(const std::string& text, const std::string& where) {
  DrafterSpec spec = parse_drafter(text);
  if (!kind_of(spec).is_model) throw UserError(router_needs_model(where, text));
  return spec;
}

const model::TransformerModel& router_embeddings(const LoadedDrafter* drafter, const std::string& where,
                                                 const std::string& name) {
  const model::TransformerModel* embeddings = drafter == nullptr ? nullptr : drafter->transformer();
  if (embeddings == nullptr) throw UserError(router_needs_model(where, name));
  return *embeddings;
}

std::unique_ptr<model::RouterPredictor> load_router(const std::filesystem::path& directory,
                                                    const LoadedDrafter* drafter, const std::string& where,
                                                    const std::string& name) {
  const model::Router router = model::load_router(directory);
  const model::TransformerModel& embeddings = router_embeddings(drafter, where, name);
  model::require_router_fits(router, directory, {drafter->path(), embeddings});
  return std::make_unique<model::RouterPredictor>(router, embeddings);
}

}  // namespace draftsmith::infer
