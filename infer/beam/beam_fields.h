// The options of beam search, for the list in infer/decode_fields.cpp.
#pragma once

#include <string>

#include "base/error.h"
#include "infer/decode_options.h"

namespace draftsmith::infer {

// Adds num_beams, length_penalty, early_stopping and n_best.
void add_beam_options(Fields<DecodeOptions>& fields);

// Adds a problem if several samples are wanted of beam search, which has n_best for several outputs.
void check_beam_options(const DecodeOptions& options, const std::string& where, Problems& problems);

}  // namespace draftsmith::infer
