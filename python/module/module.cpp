// The extension module draftsmith._draftsmith: thin functions, of which python/draftsmith makes the public interface.
#include <nlohmann/json.hpp>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include "base/device.h"
#include "base/logging.h"
#include "infer/decode_options.h"
#include "infer/drafters/registry.h"
#include "python/module/decoder.h"
#include "python/module/errors.h"
#include "python/module/jobs.h"
#include "python/module/results.h"
#include "python/module/signals.h"
#include "python/module/stream.h"
#include "python/module/values.h"

namespace draftsmith::python {
namespace {

namespace py = pybind11;

// The types and the device of a loaded model, as the program's flags name them.
struct LoadFlags {
  std::string dtype;
  std::string drafter_dtype;  // empty: dtype
  std::string device;
  int64_t threads = 0;
};

std::shared_ptr<Decoder> load(const std::string& target, const std::string& drafter, const LoadFlags& flags) {
  infer::SessionOptions options;
  options.target = target;
  options.drafter = drafter;
  options.load = {.device = choose_device(flags.device, "device"), .dtype = parse_weight_type(flags.dtype, "dtype")};
  if (!flags.drafter_dtype.empty()) options.drafter_dtype = parse_weight_type(flags.drafter_dtype, "drafter_dtype");
  if (flags.threads < 0 || flags.threads > 1024) {
    throw UserError({.where = "threads",
                     .what = "the value is not allowed",
                     .expected = "an integer from 0 to 1024",
                     .found = std::to_string(flags.threads)});
  }
  if (!drafter.empty()) infer::parse_drafter(drafter);  // reports a wrong name now, not in the first call
  const py::gil_scoped_release others;
  return std::make_shared<Decoder>(std::move(options), flags.threads);
}

// Returns the call's inputs and options. Warns of options that the method does not read.
DecodeCall call_of(const Decoder& decoder, const py::list& inputs, const py::dict& given) {
  DecodeCall call{.sources = {}, .options = options_of<infer::DecodeOptions>(given)};
  for (const Field& field : infer::DecodeOptions::fields().all()) {
    if (call.options.reads(field) || !given.contains(field.name.c_str())) continue;
    warn(field.name + " has no effect on method " + call.options.method);
  }
  call.sources = sources_of(inputs, decoder.target());
  return call;
}

py::list generate(Decoder& decoder, const py::list& inputs, const py::dict& given) {
  const DecodeCall call = call_of(decoder, inputs, given);
  std::vector<infer::GenerationResult> results;
  {
    const py::gil_scoped_release others;
    SignalPoll poll;
    results = decoder.generate(call, std::ref(poll), [&](size_t, std::span<const int64_t>, bool) { poll(); });
  }
  return results_of(std::move(results), decoder, call.options);
}

// A stream with what its results are made of.
struct OpenStream {
  std::shared_ptr<Decoder> decoder;
  infer::DecodeOptions options;
  std::unique_ptr<TokenStream> tokens;

  ~OpenStream() { close(); }
  void close() {
    const py::gil_scoped_release others;
    tokens->close();
  }
};

std::unique_ptr<OpenStream> open_stream(std::shared_ptr<Decoder> decoder, const py::list& inputs,
                                        const py::dict& given) {
  DecodeCall call = call_of(*decoder, inputs, given);
  const infer::DecodeOptions options = call.options;
  std::unique_ptr<TokenStream> tokens;
  {
    const py::gil_scoped_release others;
    tokens = std::make_unique<TokenStream>(decoder, std::move(call), SignalPoll());
  }
  return std::make_unique<OpenStream>(std::move(decoder), options, std::move(tokens));
}

py::object next_piece(OpenStream& stream) {
  std::optional<StreamPiece> piece;
  {
    const py::gil_scoped_release others;
    piece = stream.tokens->next(SignalPoll());
  }
  return piece ? py::object(piece_of(std::move(*piece))) : py::none();
}

// Returns what is known of each decoding option: name, help, default, choices, unit.
py::list option_list() {
  const infer::DecodeOptions defaults;
  const auto values = options_to_json(defaults);
  py::list list;
  for (const Field& field : infer::DecodeOptions::fields().all()) {
    list.append(py::dict(py::arg("name") = field.name, py::arg("default") = object_of(values[field.name]),
                         py::arg("choices") = field.choices, py::arg("unit") = field.unit,
                         py::arg("help") = field.help));
  }
  return list;
}

void define_decoding(py::module_& module) {
  py::class_<Decoder, std::shared_ptr<Decoder>>(module, "Decoder")
      .def_property_readonly("reads_text", [](const Decoder& decoder) { return decoder.target().tokenizer != nullptr; })
      .def_property_readonly("device",
                             [](const Decoder& decoder) { return decoder.target().model->info().device.str(); })
      .def_property_readonly("vocabulary",
                             [](const Decoder& decoder) { return decoder.target().model->info().vocabulary; });
  py::class_<OpenStream>(module, "OpenStream")
      .def("next", &next_piece)
      .def("close", &OpenStream::close)
      .def("results",
           [](OpenStream& stream) { return results_of(stream.tokens->results(), *stream.decoder, stream.options); });
  module.def("load", [](const std::string& target, const std::string& drafter, const py::dict& flags) {
    return load(target, drafter,
                {flags["dtype"].cast<std::string>(), flags["drafter_dtype"].cast<std::string>(),
                 flags["device"].cast<std::string>(), flags["threads"].cast<int64_t>()});
  });
  module.def("generate", &generate);
  module.def("stream", &open_stream);
  module.def("options", &option_list);
}

}  // namespace

PYBIND11_MODULE(_draftsmith, module) {
  start_logging(LogLevel::kWarning);
  translate_errors();
  define_decoding(module);
  module.def("train", [](std::filesystem::path recipe, std::filesystem::path work, std::vector<std::string> set,
                         const py::dict& flags) {
    const std::string until = flags.attr("pop")("until").cast<std::string>();
    const bool fresh = flags.attr("pop")("fresh").cast<bool>();
    return train({std::move(recipe), std::move(work), std::move(set)}, until, fresh, flags);
  });
  module.def("evaluate", [](std::filesystem::path suite, std::filesystem::path out, std::vector<std::string> set,
                            const py::dict& flags) {
    return evaluate_suite({std::move(suite), std::move(out), std::move(set)}, flags);
  });
  module.def("score", &score);
}

}  // namespace draftsmith::python
