// `draftsmith generate`: prints outputs for each line of a file, by any decoding method.

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/device.h"
#include "base/error.h"
#include "base/logging.h"
#include "base/signals.h"
#include "cli/application.h"
#include "data/tokenizers/tokenizer.h"
#include "infer/drafters/registry.h"
#include "infer/generator.h"
#include "infer/load_models.h"
#include "infer/loop/decode_stats.h"
#include "infer/loop/processors.h"
#include "infer/session.h"

namespace draftsmith::cli {
namespace {

using infer::DecodeOptions;
using nlohmann::ordered_json;

struct GenerateFlags {
  std::string model;
  std::string drafter;
  std::string input = "-";
  std::string dtype = "fp32";
  std::string drafter_dtype;  // empty: dtype
  bool ids = false;
  bool chat = false;
  bool json = false;
  std::optional<bool> stream;  // absent: stream on a terminal
  ExecutionOptions execution;
  std::unique_ptr<OptionFlags<data::Languages>> languages;
  std::unique_ptr<OptionFlags<DecodeOptions>> decoding;
};

// Warns of given options that the method does not read.
void warn_of_unused(const OptionFlags<DecodeOptions>& given, const DecodeOptions& options) {
  for (const Field& field : DecodeOptions::fields().all()) {
    if (options.reads(field) || !given.given(field.name)) continue;
    log_warning("{} has no effect on method {}", flag_name(field.name), options.method);
  }
  if (options.samples_by_default() || options.temperature.value_or(0) > 0) return;
  for (const std::string name : {"top_k", "top_p", "min_p"}) {
    if (given.given(name)) log_warning("{} has no effect at temperature 0", flag_name(name));
  }
}

// Returns the ids separated by blanks.
std::string words_of(std::span<const int64_t> ids) {
  return fmt::format("{}", fmt::join(ids, " "));
}

// Returns the text with blanks for line breaks.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// Flushes standard output. Throws RunError if it could not take all text.
void flush_output() {
  std::cout.flush();
  if (std::cout) return;
  throw RunError({.where = "standard output",
                  .what = "writing failed",
                  .hint = "is the disk full, or did the reader of the pipe end?"});
}

// Writes each failed result's error to standard error. Returns the number of failed results.
int64_t report_failures(std::span<const infer::GenerationResult> results) {
  int64_t failed = 0;
  for (const infer::GenerationResult& result : results) {
    if (!result.error) continue;
    std::cerr << "error: " << to_string(*result.error) << std::endl;
    ++failed;
  }
  return failed;
}

class Printer {
 public:
  Printer(const GenerateFlags& flags, const data::Tokenizer* tokenizer, const DecodeOptions& options)
      : flags_(flags), tokenizer_(tokenizer), options_(options) {}

  // Prints a line for each result. The line of a failed one is empty; its object has "error" instead of ids and text.
  // Returns the number of failed results, which it reports on standard error.
  int64_t print(std::span<const infer::GenerationResult> results) const {
    for (const infer::GenerationResult& result : results) {
      if (flags_.json) {
        std::cout << json_of(result).dump(-1, ' ', false, ordered_json::error_handler_t::replace) << '\n';
      } else {
        std::cout << (flags_.ids ? words_of(result.ids) : one_line(text(result))) << '\n';
      }
    }
    flush_output();
    return report_failures(results);
  }

 private:
  std::string text(const infer::GenerationResult& result) const {
    return tokenizer_ != nullptr ? infer::text_of_known(*tokenizer_, result.ids) : "";
  }

  ordered_json json_of(const infer::GenerationResult& result) const {
    ordered_json line;
    if (result.error) {
      line["error"] = result.error->where + ": " + result.error->what;
    } else {
      line["ids"] = result.ids;
      line["text"] = text(result);
    }
    line["stats"] = infer::stats_json(result.stats, options_.measure_alpha);
    return line;
  }

  const GenerateFlags& flags_;
  const data::Tokenizer* tokenizer_;
  const DecodeOptions& options_;
};

// Returns whether text is printed as it is committed. Errors: UserError.
bool prints_live(const GenerateFlags& flags, const DecodeOptions& options) {
  const bool alone = options.lines_together() == 1 && options.num_samples == 1;
  if (flags.json && flags.stream.value_or(false)) {
    throw UserError({.where = "draftsmith generate",
                     .what = "--stream prints text, --json one object for each complete line",
                     .expected = "one of them",
                     .found = "both",
                     .hint = "leave one out"});
  }
  if (!alone && flags.stream.value_or(false)) {
    throw UserError(
        {.where = "draftsmith generate",
         .what = "--stream prints one output while it grows",
         .expected = "a batch of one, and one output for each line",
         .found = fmt::format("{} lines together, {} outputs for each", options.lines_together(), options.num_samples),
         .hint = "leave out --stream, or --batch-size and --num-samples"});
  }
  return flags.stream.value_or(alone && !flags.json && isatty(STDOUT_FILENO) != 0);
}

// Warns once for each way in which prompts are fitted to the context.
void warn_of_fits(const std::vector<infer::PromptFit>& fits) {
  using infer::PromptFit;
  const auto warn = [&](auto happened, const char* what, const auto& detail) {
    const auto first = std::find_if(fits.begin(), fits.end(), happened);
    if (first == fits.end()) return;
    log_warning("{} of {} prompts {} (the first: input {}{})", std::count_if(first, fits.end(), happened), fits.size(),
                what, first - fits.begin() + 1, detail(*first));
  };
  warn([](const PromptFit& fit) { return fit.skipped; }, "fill the context and are skipped, with empty output",
       [](const PromptFit&) { return std::string(); });
  warn([](const PromptFit& fit) { return fit.dropped > 0; }, "lose their beginning to fit the context",
       [](const PromptFit& fit) { return fmt::format(", {} tokens dropped", fit.dropped); });
  warn([](const PromptFit& fit) { return !fit.skipped && fit.room < fit.wanted; },
       "leave room in the context for fewer new tokens than wanted",
       [](const PromptFit& fit) { return fmt::format(", {} of {}", fit.room, fit.wanted); });
}

// Batches whose lines are sorted by length together: enough for even batches, few enough for early output.
constexpr size_t kBatchesAtOnce = 16;

// Returns the number of failed outputs. Where the outputs do not show how far it is, a progress does.
int64_t generate_lines(infer::Generator& generator, std::span<const std::vector<int64_t>> sources,
                       const Printer& printer) {
  int64_t failed = 0;
  Progress progress({.style = progress_style(isatty(STDOUT_FILENO) != 0),
                     .title = "generating",
                     .unit = "outputs",
                     .total = std::ssize(sources) * generator.options().num_samples},
                    "The lines printed are complete.");
  const auto batch = static_cast<size_t>(generator.options().lines_together());
  const size_t at_once = batch == 1 ? 1 : batch * kBatchesAtOnce;
  for (size_t first = 0; first < sources.size(); first += at_once) {
    generator.generate(sources.subspan(first, std::min(at_once, sources.size() - first)), first,
                       [&](size_t, std::span<const infer::GenerationResult> results) {
                         failed += printer.print(results);
                         progress.advance(std::ssize(results));
                         throw_if_stop_requested("The lines printed are complete.");
                       });
  }
  return failed;
}

// Prints each output while it grows, without half characters; ids if the tokenizer is null. On an error, the growing
// line is ended first. Returns the number of failed outputs.
int64_t generate_live(infer::Generator& generator, std::span<const std::vector<int64_t>> sources,
                      const data::Tokenizer* tokenizer) {
  int64_t failed = 0;
  for (size_t line = 0; line < sources.size(); ++line) {
    std::optional<data::StreamDecoder> decoder;
    if (tokenizer != nullptr) decoder.emplace(*tokenizer);
    bool begun = false;
    const auto print = [&](size_t, std::span<const int64_t> tokens, bool finished) {
      std::string text;
      if (!decoder) text = (begun && !tokens.empty() ? " " : "") + words_of(tokens);
      for (const int64_t id : tokens) {
        if (decoder && id < tokenizer->vocabulary()) text += decoder->push(static_cast<int32_t>(id));
      }
      if (decoder && finished) text += decoder->flush();
      begun = begun || !tokens.empty();
      std::cout << one_line(std::move(text));
      flush_output();
      throw_if_stop_requested("The last line printed may be incomplete.");
    };
    try {
      const LongWork work("The last line printed may be incomplete.");
      const auto results = generator.generate(sources.subspan(line, 1), line, {}, print);
      std::cout << '\n';
      flush_output();
      failed += report_failures(results);
    } catch (...) {
      if (begun) std::cout << std::endl;
      throw;
    }
  }
  return failed;
}

int run_generate(const GenerateFlags& flags) {
  const c10::Device device = begin_execution(flags.execution);
  const DecodeOptions options = flags.decoding->value();
  const bool live = prints_live(flags, options);
  if (!flags.drafter.empty() && !infer::takes_drafter(options)) {
    log_warning("--drafter has no effect on method {}", options.method);
  }
  std::optional<at::ScalarType> drafter_type;
  if (!flags.drafter_dtype.empty()) drafter_type = parse_dtype(flags.drafter_dtype, "--drafter-dtype");
  if (drafter_type && (flags.drafter.empty() || !infer::takes_drafter(options))) {
    log_warning("--drafter-dtype has no effect without a drafter");
  }
  warn_of_unused(*flags.decoding, options);
  infer::Session session({.target = flags.model,
                          .drafter = flags.drafter,
                          .load = {.device = device, .dtype = parse_dtype(flags.dtype)},
                          .drafter_dtype = drafter_type,
                          .languages = flags.languages->value(),
                          .option_prefix = "--"});
  infer::Generator generator = session.generator(options);
  const infer::LoadedModel& target = session.target();
  const auto sources = infer::read_source_lines(flags.input, target, flags.ids, flags.chat);
  warn_of_fits(generator.fit(sources));
  if (target.generation.num_beams != 1) {
    log_warning("the model's generation settings ask for {} beams; here every method follows one",
                target.generation.num_beams);
  }
  const SignalWatch signals;
  if (live) return generate_live(generator, sources, flags.ids ? nullptr : target.tokenizer.get()) > 0 ? 1 : 0;
  const Printer printer(flags, target.tokenizer.get(), options);
  return generate_lines(generator, sources, printer) > 0 ? 1 : 0;
}

}  // namespace

Action add_generate(CLI::App& app) {
  auto flags = std::make_shared<GenerateFlags>();
  app.add_option("--model", flags->model, "Directory of the target model")->required();
  app.add_option("--drafter", flags->drafter, infer::drafter_help());
  app.add_option("--input", flags->input, "File with one source or prompt a line; - is standard input")
      ->capture_default_str();
  auto* ids = app.add_flag("--ids", flags->ids, "Read and print token ids instead of text; no EOS is added");
  app.add_flag("--chat", flags->chat, "Read each line as a user's message, in the target's chat template")
      ->excludes(ids);
  app.add_flag(
      "--json", flags->json,
      "Print one JSON object a line: ids, text, counts and seconds; error instead of ids and text if it failed");
  // Not by the member's address: CLI11 would count, so that an optional is never absent.
  app.add_flag_function(
      "--stream,!--no-stream", [flags](int64_t count) { flags->stream = count > 0; },
      "Print text as it is committed, or only complete lines. By default, text is streamed on a terminal "
      "without --json, samples and batches");
  app.add_option(
         "--dtype", flags->dtype,
         "fp32, bf16, fp16, fp64 or int8. On CPUs, bf16 and int8 are the types of weights, which are read faster: "
         "hidden states stay fp32. int8 is for CPUs")
      ->capture_default_str();
  app.add_option("--drafter-dtype", flags->drafter_dtype,
                 "Type of a drafter that is a model (default: --dtype). Lossless methods stay lossless for the target "
                 "as --dtype gives it");
  flags->languages = std::make_unique<OptionFlags<data::Languages>>(app);
  flags->decoding = std::make_unique<OptionFlags<DecodeOptions>>(app);
  add_execution_flags(app, flags->execution);
  app.footer(
      "Examples:\n"
      "Without a drafter, and with a small model as drafter:\n"
      "  draftsmith generate --model target --input test.de\n"
      "  draftsmith generate --model target --input test.de --drafter small --method assisted\n"
      "  draftsmith generate --model target --input test.de --drafter small \\\n"
      "    --method speculative --temperature 0.7 --window 4\n"
      "  draftsmith generate --model target --input test.de --drafter small \\\n"
      "    --method bild --fallback 0.6 --rollback 3 --json\n"
      "With a drafter that copies from the text, and with a Tandem secondary:\n"
      "  draftsmith generate --model target --input documents.txt --drafter lookup --method assisted\n"
      "  draftsmith generate --model target --input test.de --drafter secondary \\\n"
      "    --method tandem-speed --window 5\n"
      "With the target's own first layers:\n"
      "  draftsmith generate --model target --input test.de --drafter exit:2 --method assisted\n"
      "  draftsmith generate --model target --input test.de --method calm --exit-threshold 0.9\n"
      "  draftsmith generate --model target --input test.de --method ppd --candidates 3\n"
      "A prompt of a decoder-only model, printed as it grows, and a chat model's answer:\n"
      "  echo 'Once upon a time' | draftsmith generate --model gpt2 --method sample --stream\n"
      "  echo 'Why is the sky blue?' | draftsmith generate --model smollm2 --chat");
  return [flags] { return run_generate(*flags); };
}

}  // namespace draftsmith::cli
