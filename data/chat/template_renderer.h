// Renders a parsed chat template.
#pragma once

#include <string>
#include <vector>

#include "data/chat/template_nodes.h"

namespace draftsmith::data {

// Returns the text of a template with these variables (a mapping). Errors: UserError that names `source` and line: for
// functions, filters, methods and tests that are unknown here, for values that cannot be used, and for
// raise_exception(), by which a template refuses its messages.
std::string render_template(const std::vector<TemplateNode>& nodes, const TemplateValue& variables,
                            const std::string& source);

}  // namespace draftsmith::data
