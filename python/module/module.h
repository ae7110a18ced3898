// The extension module draftsmith._draftsmith: thin functions, of which python/draftsmith makes the public interface.
// Options come as TOML, results go as tuples and dicts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "base/options.h"
#include "base/toml.h"
#include "infer/load_models.h"

namespace draftsmith::python {

// Thrown where a Python exception is already set in this thread.
struct PythonError {};

// Returns the options struct T of lines `name = value`. Errors: UserError with all problems.
template <class T>
T options_of(const std::string& lines) {
  Problems problems;
  T options = parse_options<T>(parse_toml(lines, ""), "", problems);
  problems.throw_if_any();
  return options;
}

// Returns the sources of a list of texts (str) and lists of ids, as the program reads lines. Ids may be lists, NumPy
// arrays or tensors on the CPU, which are read in place. Errors: UserError.
std::vector<std::vector<int64_t>> sources_of(const pybind11::list& inputs, const infer::LoadedModel& model);

// Returns an array that owns the values, which are not copied.
template <class T>
pybind11::array_t<T> array_of(std::vector<T> values) {
  auto* owned = new std::vector<T>(std::move(values));
  const pybind11::capsule owner(owned, [](void* pointer) { delete static_cast<std::vector<T>*>(pointer); });
  return pybind11::array_t<T>(static_cast<pybind11::ssize_t>(owned->size()), owned->data(), owner);
}

// Returns Python's dicts, lists, numbers and strings.
pybind11::object object_of(const nlohmann::ordered_json& json);

// Adds load, DecodeCall, decode and options.
void define_decoding(pybind11::module_& module);

// Adds train, evaluate, score, Job and request_stop.
void define_jobs(pybind11::module_& module);

}  // namespace draftsmith::python
