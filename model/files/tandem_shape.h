// Checks the shape of a Tandem secondary's part of a configuration.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "model/transformer/transformer_config.h"

namespace draftsmith::model {

// Adds a problem for each: a layer map of another length than the secondary's layers, or a number in it outside
// 0..primary_layers (the first one); γ below 1. `where` names the options or the file.
void check_tandem_shape(const TandemShape& shape, int64_t secondary_layers, const std::string& where,
                        Problems& problems);

}  // namespace draftsmith::model
