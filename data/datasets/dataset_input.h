// A corpus's text by the name of a data set.
#pragma once

#include "data/text/text_input.h"

namespace draftsmith::data {

// Returns the input with the files and fields of its data set, or the input itself if it names none.
// Errors: UserError for unknown names and directions, for text whose references are fewer than its lines, for lines
// without source or reference, and for an input that names files as well.
TextInput with_dataset(const TextInput& input);

}  // namespace draftsmith::data
