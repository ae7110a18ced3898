#include "python/module/results.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "infer/loop/stats_json.h"
#include "infer/loop/vocabulary.h"
#include "python/module/values.h"

namespace draftsmith::python {

namespace py = pybind11;

py::list results_of(std::vector<infer::GenerationResult> results, const Decoder& decoder,
                    const infer::DecodeOptions& options) {
  const data::Tokenizer* tokenizer = decoder.target().tokenizer.get();
  py::list list;
  for (infer::GenerationResult& result : results) {
    py::object text = py::none(), log_probabilities = py::none(), score = py::none(), error = py::none();
    if (tokenizer != nullptr) text = py::str(infer::text_of_known(*tokenizer, result.ids));
    if (options.log_probs) log_probabilities = array_of(std::move(result.log_probabilities));
    if (result.score) score = py::float_(*result.score);
    if (result.error) error = py::str(to_string(*result.error));
    const py::object stats = object_of(infer::stats_json(result.stats, options.measure_alpha));
    list.append(py::make_tuple(array_of(std::move(result.ids)), text, stats, log_probabilities, score, error));
  }
  return list;
}

py::tuple piece_of(StreamPiece piece) {
  return py::make_tuple(piece.output, array_of(std::move(piece.ids)), py::str(piece.text), piece.finished);
}

}  // namespace draftsmith::python
