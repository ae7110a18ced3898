// Instantiates nlohmann's classes for all other files. Compiled without the precompiled header, which declares them as
// instantiated elsewhere.
#define DRAFTSMITH_JSON_TEMPLATES
#include "base/json_templates.h"
