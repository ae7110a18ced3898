// The extension module draftsmith._draftsmith: thin functions, of which python/draftsmith makes the public interface.
// Options come as TOML, results go as tuples and dicts.
#pragma once

#include <chrono>
#include <string>

#include <nlohmann/json_fwd.hpp>
#include <pybind11/pybind11.h>

#include "base/options.h"
#include "base/toml.h"

namespace draftsmith::python {

// Thrown where a Python exception is already set in this thread.
struct PythonError {};

// Runs Python's handlers of signals that have come, a few times a second at most; only its main thread has any. Throws
// PythonError if one raised an exception, as that of Ctrl-C does. Long work without the interpreter's lock calls it at
// its points (base/signals.h).
class SignalPoll {
 public:
  void operator()();

 private:
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now();
};

// Returns the options struct T of lines `name = value`. Errors: UserError with all problems.
template <class T>
T options_of(const std::string& lines) {
  Problems problems;
  T options = parse_options<T>(parse_toml(lines, ""), "", problems);
  problems.throw_if_any();
  return options;
}

// Returns a text of Python's; bytes that are no UTF-8, as programs print them, become U+FFFD.
pybind11::str text_of(const std::string& text);

// Returns Python's dicts, lists, numbers and strings.
pybind11::object object_of(const nlohmann::ordered_json& json);

// Adds load, DecodeCall, decode and options.
void define_decoding(pybind11::module_& module);

// Adds train, evaluate, score, Job and request_stop.
void define_jobs(pybind11::module_& module);

}  // namespace draftsmith::python
