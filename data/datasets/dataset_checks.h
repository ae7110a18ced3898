// Checks of named data sets, made before anything runs.
#pragma once

#include <string>

#include "data/datasets/dataset.h"
#include "data/datasets/jsonl_summary.h"

namespace draftsmith::data {

// Requires no direction of a data set that is not parallel text. Errors: UserError.
void refuse_direction(const std::string& direction, const NamedDataset& set);

// Requires as many references as sources. Errors: UserError.
void require_equal_lines(const NamedDataset& set, const Direction& direction);

// Returns the content of a jsonl data set whose fields are known by a convention. Errors: UserError for other fields
// and for prompts that are SPEED-Bench's placeholders.
JsonlSummary known_summary(const NamedDataset& set);

}  // namespace draftsmith::data
