// The one place where nlohmann's classes are instantiated. Compiled without the precompiled header, which declares that
// they are instantiated elsewhere.
#define DRAFTSMITH_JSON_TEMPLATES
#include "base/json_templates.h"
