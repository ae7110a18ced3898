#include "python/module/values.h"

#include <memory>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace draftsmith::python {
namespace {

namespace py = pybind11;

std::string type_name(const py::handle& value) {
  return py::str(py::type::handle_of(value).attr("__name__"));
}

std::unique_ptr<toml::node> node_of(const py::handle& value, const std::string& where, Problems& problems);

std::unique_ptr<toml::node> array_node_of(const py::handle& values, const std::string& where, Problems& problems) {
  auto array = std::make_unique<toml::array>();
  for (const py::handle value : values) {
    const auto node = node_of(value, fmt::format("{}[{}]", where, array->size()), problems);
    if (node) node->visit([&](const auto& typed) { array->push_back(typed); });
  }
  return array;
}

bool is_path(const py::handle& value) {
  return py::hasattr(value, "__fspath__");
}

// Returns nothing after adding a problem.
std::unique_ptr<toml::node> node_of(const py::handle& value, const std::string& where, Problems& problems) {
  if (py::isinstance<py::bool_>(value)) return std::make_unique<toml::value<bool>>(value.cast<bool>());
  if (py::isinstance<py::str>(value)) return std::make_unique<toml::value<std::string>>(value.cast<std::string>());
  if (is_path(value)) {
    return std::make_unique<toml::value<std::string>>(py::str(value.attr("__fspath__")()).cast<std::string>());
  }
  if (py::isinstance<py::float_>(value)) return std::make_unique<toml::value<double>>(value.cast<double>());
  if (py::isinstance<py::dict>(value)) {
    return std::make_unique<toml::table>(table_of(py::reinterpret_borrow<py::dict>(value), problems));
  }
  if (py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value)) {
    return array_node_of(value, where, problems);
  }
  if (PyIndex_Check(value.ptr()) != 0) {
    // From 2^63 on, digits stand in a string (base/options_parse.cpp).
    const auto number = py::reinterpret_steal<py::int_>(PyNumber_Index(value.ptr()));
    if (!number) throw py::error_already_set();
    int overflow = 0;
    const long long small = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
    if (overflow == 0) return std::make_unique<toml::value<int64_t>>(small);
    return std::make_unique<toml::value<std::string>>(py::str(py::object(number)).cast<std::string>());
  }
  if (PyNumber_Check(value.ptr()) != 0)
    return std::make_unique<toml::value<double>>(py::float_(py::reinterpret_borrow<py::object>(value)).cast<double>());
  problems.add({.where = where,
                .what = "the value has a type that no option has",
                .expected = "bool, int, float, str, a path, or a list or dict of them",
                .found = type_name(value)});
  return nullptr;
}

UserError wrong_input(size_t index, const std::string& what, const std::string& found) {
  return UserError({.where = fmt::format("input {}", index + 1),
                    .what = what,
                    .expected = "a text (str), or one list, NumPy array or CPU tensor of integers",
                    .found = found,
                    .hint = "tensors on a GPU: .cpu(); rows of a two-dimensional array are inputs of their own"});
}

std::vector<int64_t> ids_of(const py::handle& input, size_t index) {
  const auto array = py::array::ensure(input);
  if (!array) {
    PyErr_Clear();
    throw wrong_input(index, "the input is neither text nor token ids", type_name(input));
  }
  const char kind = array.dtype().kind();
  if (array.ndim() != 1 || (array.size() > 0 && kind != 'i' && kind != 'u')) {
    throw wrong_input(index, "the input is no list of token ids",
                      fmt::format("{} with {} dimension(s) of {}", type_name(input), array.ndim(),
                                  py::str(array.dtype()).cast<std::string>()));
  }
  const auto ids = py::array_t<int64_t, py::array::c_style | py::array::forcecast>::ensure(array);
  if (!ids) throw py::error_already_set();
  return {ids.data(), ids.data() + ids.size()};
}

}  // namespace

toml::table table_of(const py::dict& values, Problems& problems) {
  toml::table table;
  for (const auto& [key, value] : values) {
    if (value.is_none()) continue;
    const std::string name = py::str(key);
    const auto node = node_of(value, name, problems);
    if (node) node->visit([&](const auto& typed) { table.insert_or_assign(name, typed); });
  }
  return table;
}

std::vector<std::vector<int64_t>> sources_of(const py::list& inputs, const infer::LoadedModel& model) {
  std::vector<std::vector<int64_t>> sources;
  for (const py::handle input : inputs) {
    if (py::isinstance<py::str>(input)) {
      const data::Tokenizer& tokenizer = infer::tokenizer_of(model, "give token ids in place of texts");
      sources.push_back(infer::source_ids(input.cast<std::string>(), tokenizer, model.model->info()));
    } else {
      sources.push_back(ids_of(input, sources.size()));
    }
  }
  return sources;
}

py::object object_of(const nlohmann::ordered_json& json) {
  const std::string text = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return py::module_::import("json").attr("loads")(py::str(text));
}

}  // namespace draftsmith::python
