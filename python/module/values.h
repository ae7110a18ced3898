// Values between Python and Draftsmith: keyword arguments as TOML, texts and ids as sources, JSON as Python objects.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <toml++/toml.h>

#include "base/options.h"
#include "infer/load_models.h"

namespace draftsmith::python {

// Returns the dict as a table: bool, int, float, str and paths, lists and dicts of them. Keys that are None are left
// out. Adds a problem for each value of another type.
toml::table table_of(const pybind11::dict& values, Problems& problems);

// Returns the options struct T with these values by its fields' names. Errors: UserError with all problems.
template <class T>
T options_of(const pybind11::dict& values) {
  Problems problems;
  const toml::table table = table_of(values, problems);
  problems.throw_if_any();
  T options = parse_options<T>(table, "", problems);
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

}  // namespace draftsmith::python
