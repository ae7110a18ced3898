// The module's initialisation, exceptions and values.
#include "python/module/module.h"

#include <new>
#include <stdexcept>
#include <string>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/logging.h"
#include "base/signals.h"

namespace draftsmith::python {
namespace {

namespace py = pybind11;

// Sets draftsmith.errors.NAME with its problems.
void set_error(const char* name, const std::vector<Problem>& problems) {
  py::list list;
  for (const Problem& problem : problems) {
    list.append(py::dict(py::arg("where") = problem.where, py::arg("what") = problem.what,
                         py::arg("expected") = problem.expected, py::arg("found") = problem.found,
                         py::arg("hint") = problem.hint));
  }
  const py::object error_type = py::module_::import("draftsmith.errors").attr(name);
  PyErr_SetObject(error_type.ptr(), error_type(list).ptr());
}

// Makes Draftsmith's and LibTorch's exceptions Python's.
void translate(std::exception_ptr pointer) {
  try {
    std::rethrow_exception(pointer);
  } catch (const PythonError&) {
    // Python's exception is set.
  } catch (const Interrupted& stop) {
    set_error("Interrupted", stop.problems());
  } catch (const UserError& error) {
    set_error("UserError", error.problems());
  } catch (const Error& error) {
    set_error("RunError", error.problems());
  } catch (const c10::OutOfMemoryError& error) {
    set_error("RunError", {{.what = "the GPU's memory is full",
                            .found = error.what_without_backtrace(),
                            .hint = "decode with a smaller batch_size, or stop other programs on the GPU"}});
  } catch (const c10::Error& error) {
    set_error("RunError", {{.what = std::string("LibTorch: ") + error.what_without_backtrace()}});
  } catch (const std::bad_alloc&) {
    set_error("RunError", {{.what = "out of memory", .hint = "use smaller batches or a smaller model"}});
  } catch (const std::logic_error& error) {
    set_error("InternalError", {{.what = error.what(), .hint = "this is a bug in draftsmith; please report it"}});
  }
}

std::string type_name(const py::handle& value) {
  return py::str(py::type::handle_of(value).attr("__name__"));
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

PYBIND11_MODULE(_draftsmith, module) {
  set_quiet(true);
  py::register_local_exception_translator(&translate);
  define_decoding(module);
  define_jobs(module);
}

}  // namespace draftsmith::python
