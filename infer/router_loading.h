// Routers with the drafters that they were trained for.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "infer/drafters/registry.h"
#include "model/kinds/router.h"

namespace draftsmith::infer {

// Reads the text of a drafter that a router can be trained for. Errors: UserError for a drafter that is no model of its
// own; `where` names the option.
DrafterSpec parse_router_drafter(const std::string& text, const std::string& where);

// Returns the drafter's model, whose embeddings routers read. Errors: UserError for a drafter that is no transformer;
// `where` and `name` as in load_router().
const model::TransformerModel& router_embeddings(const LoadedDrafter* drafter, const std::string& where,
                                                 const std::string& name);

// Loads a router and binds it to its drafter, which must outlive it. Errors: UserError for a router of another drafter,
// and for a drafter that is no transformer; `where` names the router's option, `name` the drafter in messages.
std::unique_ptr<model::RouterPredictor> load_router(const std::filesystem::path& directory,
                                                    const LoadedDrafter* drafter, const std::string& where,
                                                    const std::string& name);

}  // namespace draftsmith::infer
