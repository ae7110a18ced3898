// Loading and decoding.
#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "base/device.h"
#include "base/signals.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/decode_options.h"
#include "infer/drafters/registry.h"
#include "infer/load_models.h"
#include "infer/loop/decode_stats.h"
#include "infer/loop/processors.h"
#include "infer/session.h"
#include "python/module/module.h"

namespace draftsmith::python {
namespace {

namespace py = pybind11;

// Returns an array that owns the values, which are not copied.
template <class T>
pybind11::array_t<T> array_of(std::vector<T> values) {
  auto* owned = new std::vector<T>(std::move(values));
  const pybind11::capsule owner(owned, [](void* pointer) { delete static_cast<std::vector<T>*>(pointer); });
  return pybind11::array_t<T>(static_cast<pybind11::ssize_t>(owned->size()), owned->data(), owner);
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

// Returns the sources of a list of texts (str) and lists of ids, as the program reads lines. Ids may be lists, NumPy
// arrays or tensors on the CPU, which are read in place. Errors: UserError.
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

// Batches whose sources are sorted by length together, as in cli/generate.cpp: counts are those of the program.
constexpr size_t kBatchesAtOnce = 16;

// Inputs and options of one call.
struct DecodeCall {
  std::vector<std::vector<int64_t>> sources;
  infer::DecodeOptions options;
  std::vector<std::string> unread;  // options that were given and that the method does not read
};

DecodeCall call_of(const infer::LoadedModel& target, const py::list& inputs, const std::string& lines) {
  DecodeCall call{.sources = {}, .options = options_of<infer::DecodeOptions>(lines), .unread = {}};
  const toml::table given = parse_toml(lines, "");
  for (const Field& field : infer::DecodeOptions::fields().all()) {
    if (given.contains(field.name) && !call.options.reads(field)) call.unread.push_back(field.name);
  }
  call.sources = sources_of(inputs, target);
  return call;
}

// A session, one of whose callers decodes at a time.
class Decoder {
 public:
  // Loads the target. `threads`: of LibTorch while it decodes; 0: as they are. Errors: those of infer::Session.
  Decoder(infer::SessionOptions options, int64_t threads) : session_(std::move(options)), threads_(threads) {}

  const infer::LoadedModel& target() const { return session_.target(); }

  // Decodes so many sources at once, in their order: of one batch at a time, early ones are committed first. Errors:
  // those of infer::Session::generator() and of the generator.
  std::vector<infer::GenerationResult> decode(const DecodeCall& call, size_t sources_at_once,
                                              const infer::OnTokens& on_tokens);

 private:
  // The generator of the last call, with what it has recorded and prepared.
  struct Prepared {
    std::string options;
    infer::Generator generator;
  };

  infer::Generator& generator(const infer::DecodeOptions& options);

  infer::Session session_;
  const int64_t threads_;
  std::optional<Prepared> prepared_;
};

infer::Generator& Decoder::generator(const infer::DecodeOptions& options) {
  const std::string key = options_to_json(options).dump();
  if (prepared_ && prepared_->options == key) {
    prepared_->generator.carry_window(std::nullopt);  // counts do not depend on earlier calls
  } else {
    prepared_.reset();
    prepared_.emplace(Prepared{key, session_.generator(options)});
  }
  return prepared_->generator;
}

std::vector<infer::GenerationResult> Decoder::decode(const DecodeCall& call, size_t sources_at_once,
                                                     const infer::OnTokens& on_tokens) {
  const ThreadCount count(threads_);
  std::vector<infer::GenerationResult> results;
  const std::span<const std::vector<int64_t>> sources(call.sources);
  const auto outputs = static_cast<size_t>(call.options.num_samples);
  try {
    infer::Generator& generating = generator(call.options);
    generating.fit(sources);  // reports a bad input before the first token
    for (size_t first = 0; first < sources.size(); first += sources_at_once) {
      const auto shifted = [&](size_t output, std::span<const int64_t> tokens, bool finished) {
        on_tokens(first * outputs + output, tokens, finished);
      };
      const auto chosen = sources.subspan(first, std::min(sources_at_once, sources.size() - first));
      auto part = generating.generate(chosen, first, {}, shifted);
      std::move(part.begin(), part.end(), std::back_inserter(results));
    }
  } catch (...) {
    prepared_.reset();  // it stopped amid a batch
    throw;
  }
  return results;
}

struct LoadFlags : ExecutionOptions, data::Languages {
  static Fields<LoadFlags> fields() {
    return Fields<LoadFlags>("load()").inherit<ExecutionOptions>().inherit<data::Languages>();
  }
};

std::unique_ptr<Decoder> load(const std::string& target, const std::string& drafter, const std::string& dtype,
                              const std::string& drafter_dtype, const std::string& flags) {
  const auto execution = options_of<LoadFlags>(flags);
  infer::SessionOptions options;
  options.target = target;
  options.drafter = drafter;
  options.load = {.device = choose_device(execution.device, "device"), .dtype = parse_dtype(dtype, "dtype")};
  options.languages = execution;
  if (!drafter_dtype.empty()) options.drafter_dtype = parse_dtype(drafter_dtype, "drafter_dtype");
  if (!drafter.empty()) infer::parse_drafter(drafter);  // reports a wrong name now, not in the first call
  const py::gil_scoped_release others;
  return std::make_unique<Decoder>(std::move(options), execution.threads);
}

// Returns a function that calls Python's on_piece(output, ids, text, finished) with tokens that were committed
// together and the whole characters that they complete. It throws PythonError if on_piece raised an exception.
infer::OnTokens pieces_for(const py::object& on_piece, const data::Tokenizer* tokenizer) {
  auto texts = std::make_shared<std::map<size_t, data::StreamDecoder>>();  // of unfinished outputs
  return [=, &on_piece](size_t output, std::span<const int64_t> tokens, bool finished) {
    std::string text;
    if (tokenizer != nullptr) {
      data::StreamDecoder& decoder = texts->try_emplace(output, *tokenizer).first->second;
      for (const int64_t id : tokens) {
        if (id < tokenizer->vocabulary()) text += decoder.push(static_cast<int32_t>(id));
      }
      if (finished) text += decoder.flush();
      if (finished) texts->erase(output);
    }
    const py::gil_scoped_acquire lock;
    try {
      on_piece(output, array_of(std::vector<int64_t>(tokens.begin(), tokens.end())), text, finished);
    } catch (py::error_already_set& error) {
      error.restore();
      throw PythonError();
    }
  };
}

// Returns (ids, text, stats, error) of each result. Arrays own the results' values.
py::list results_of(std::vector<infer::GenerationResult> results, const data::Tokenizer* tokenizer,
                    const infer::DecodeOptions& options) {
  py::list list;
  for (infer::GenerationResult& result : results) {
    py::object text = py::none(), error = py::none();
    if (tokenizer != nullptr) text = py::str(infer::text_of_known(*tokenizer, result.ids));
    if (result.error) error = text_of(to_string(*result.error));
    const py::object stats = object_of(infer::stats_json(result.stats, options.measure_alpha));
    list.append(py::make_tuple(array_of(std::move(result.ids)), text, stats, error));
  }
  return list;
}

// Decodes; with `on_piece`, batch after batch, and calls it.
py::list decode(Decoder& decoder, const DecodeCall& call, const py::object& on_piece) {
  const data::Tokenizer* tokenizer = decoder.target().tokenizer.get();
  const auto batch = static_cast<size_t>(call.options.lines_together());
  std::vector<infer::GenerationResult> results;
  {
    const py::gil_scoped_release others;
    SignalPoll poll;
    const LongWork work({}, [&poll] { poll(); });
    if (on_piece.is_none()) {
      const auto nothing = [](size_t, std::span<const int64_t>, bool) {};
      results = decoder.decode(call, batch == 1 ? 1 : batch * kBatchesAtOnce, nothing);
    } else {
      results = decoder.decode(call, batch, pieces_for(on_piece, tokenizer));
    }
  }
  return results_of(std::move(results), tokenizer, call.options);
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

}  // namespace

void define_decoding(py::module_& module) {
  py::class_<Decoder>(module, "Decoder");
  py::class_<DecodeCall>(module, "DecodeCall")
      .def(py::init([](const Decoder& decoder, const py::list& inputs, const std::string& lines) {
        return call_of(decoder.target(), inputs, lines);
      }))
      .def_readonly("unread", &DecodeCall::unread);
  module.def("load", &load);
  module.def("decode", &decode);
  module.def("options", &option_list);
}

}  // namespace draftsmith::python
