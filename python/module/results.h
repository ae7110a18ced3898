// Results of decoding as Python's tuples, which the package makes its classes of.
#pragma once

#include <vector>

#include <pybind11/pybind11.h>

#include "python/module/decoder.h"
#include "python/module/stream.h"

namespace draftsmith::python {

// Returns (ids, text, stats, log_probabilities, score, error) of each result. Arrays own the results' values.
pybind11::list results_of(std::vector<infer::GenerationResult> results, const Decoder& decoder,
                          const infer::DecodeOptions& options);

// Returns (output, ids, text, finished).
pybind11::tuple piece_of(StreamPiece piece);

}  // namespace draftsmith::python
