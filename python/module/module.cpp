// The module's initialisation, exceptions and values.
#include "python/module/module.h"

#include <new>
#include <stdexcept>

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include "base/logging.h"
#include "base/signals.h"

namespace draftsmith::python {

void SignalPoll::operator()() {
  constexpr std::chrono::milliseconds kLookEvery{50};
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + kLookEvery;
  const pybind11::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) throw PythonError();
}

namespace {

namespace py = pybind11;

// Sets draftsmith.errors.NAME with its problems.
void set_error(const char* name, const std::vector<Problem>& problems) {
  py::list list;
  for (const Problem& problem : problems) {
    list.append(py::dict(py::arg("where") = text_of(problem.where), py::arg("what") = text_of(problem.what),
                         py::arg("expected") = text_of(problem.expected), py::arg("found") = text_of(problem.found),
                         py::arg("hint") = text_of(problem.hint)));
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

}  // namespace

py::str text_of(const std::string& text) {
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<py::ssize_t>(text.size()), "replace"));
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
