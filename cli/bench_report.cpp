#include "cli/bench_report.h"

#include <stdexcept>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/files.h"
#include "base/table.h"

namespace draftsmith::cli {
namespace {

using infer::PromptPart;
using infer::PromptSpeed;
using infer::StepSpeed;
using nlohmann::ordered_json;

constexpr double kGiga = 1e9;
constexpr double kMilli = 1e3;  // milliseconds of a second

std::string percent(double share) {
  return fmt::format("{:.0f} %", 100 * share);
}

std::vector<std::string> cells(const Spread& spread, double unit) {
  // Three digits at least.
  const int digits = unit * spread.median < 10 ? 3 : unit * spread.median < 100 ? 2 : 1;
  const auto cell = [&](double value) { return fmt::format("{:.{}f}", unit * value, digits); };
  return {cell(spread.median), cell(spread.low), cell(spread.high)};
}

ordered_json spread_json(const Spread& spread, double unit) {
  return {{"median", unit * spread.median}, {"p10", unit * spread.low}, {"p90", unit * spread.high}};
}

// The meaning of a step's time.
struct StepFigures {
  double relative = 1;        // to a step of one token
  double bytes_a_second = 0;  // weights, keys and values
  double memory_share = 0;    // of the memory's rate
  double operations_a_second = 0;
  double least_seconds = 0;  // by the roofline
  double roofline_share = 0;
};

StepFigures figures_of(const StepSpeed& step, const infer::ModelSpeed& speed) {
  StepFigures figures;
  const double seconds = step.seconds.median;
  figures.relative = seconds / speed.steps.front().seconds.median;
  figures.bytes_a_second = step.work.bytes() / seconds;
  figures.memory_share = figures.bytes_a_second / speed.memory.rate.median;
  figures.operations_a_second = step.work.operations / seconds;
  figures.least_seconds = speed.least_seconds(step.work);
  figures.roofline_share = figures.least_seconds / seconds;
  return figures;
}

std::string name_of(PromptPart part, int64_t tokens) {
  switch (part) {
    case PromptPart::kEncoder:
      return fmt::format("encoder, {} tokens", tokens);
    case PromptPart::kCrossAttention:
      return "keys and values of the encoder's states";
    case PromptPart::kPrompt:
      return fmt::format("prompt, {} tokens", tokens);
  }
  throw std::logic_error("unknown part of the work before the first token");
}

std::string key_of(PromptPart part) {
  switch (part) {
    case PromptPart::kEncoder:
      return "encoder";
    case PromptPart::kCrossAttention:
      return "cross_attention";
    case PromptPart::kPrompt:
      return "prompt";
  }
  throw std::logic_error("unknown part of the work before the first token");
}

std::string machine_table(const infer::ModelSpeed& speed) {
  Table table({{"machine", Align::kLeft}, {"unit", Align::kLeft}, {"median"}, {"10 %"}, {"90 %"}});
  const auto add = [&](const infer::RateSpeed& rate, const char* unit) {
    const auto numbers = cells(rate.rate, 1 / kGiga);
    table.add_row({rate.description, unit, numbers[0], numbers[1], numbers[2]});
  };
  add(speed.memory, "GB/s");
  add(speed.products, "GFLOP/s");
  return table.text();
}

std::string prompt_table(const BenchReport& report) {
  Table table({{"before the first token", Align::kLeft}, {"ms"}, {"10 %"}, {"90 %"}, {"GFLOP/s"}, {"of products"}});
  for (const PromptSpeed& part : report.speed.prompt) {
    const auto numbers = cells(part.seconds, kMilli);
    const double rate = part.work.operations / part.seconds.median;
    table.add_row({name_of(part.part, report.question.source), numbers[0], numbers[1], numbers[2],
                   fmt::format("{:.1f}", rate / kGiga), percent(rate / report.speed.products.rate.median)});
  }
  return table.text();
}

std::string step_table(const infer::ModelSpeed& speed) {
  Table table({{"tokens"},
               {"ms"},
               {"10 %"},
               {"90 %"},
               {"x one"},
               {"GB/s"},
               {"of memory"},
               {"roofline ms"},
               {"of roofline"},
               {"allocations"}});
  for (const StepSpeed& step : speed.steps) {
    const StepFigures figures = figures_of(step, speed);
    const auto numbers = cells(step.seconds, kMilli);
    table.add_row({std::to_string(step.tokens), numbers[0], numbers[1], numbers[2],
                   fmt::format("{:.2f}", figures.relative), fmt::format("{:.1f}", figures.bytes_a_second / kGiga),
                   percent(figures.memory_share), fmt::format("{:.3f}", kMilli * figures.least_seconds),
                   percent(figures.roofline_share),
                   step.allocations ? std::to_string(step.allocations->calls) : std::string()});
  }
  table.drop_empty_columns();
  return table.text();
}

// Returns what the tables cannot say, a paragraph each.
std::string notes(const BenchReport& report) {
  std::string text = wrapped(
      "roofline: bytes at the memory's rate or operations at the rate of products, whichever takes longer. Shares are "
      "above 100 % where weights stay in a cache, or where products of few rows or of int8 beat the products above.",
      100, 0, 0);
  const bool counted = report.speed.steps.front().allocations.has_value();
  text += counted ? "allocations: calls of malloc and new on the host in one step.\n"
                  : "Allocations are not counted: this process runs without TCMalloc, whose hooks count them.\n";
  if (report.device != "cpu") {
    text += wrapped(
        "On this device the memory's rate is that of copies, and kernels, launches and waits are not measured "
        "(bench_device_decoding measures them).",
        100, 0, 0);
  }
  return text;
}

ordered_json prompt_json(const PromptSpeed& part, const infer::ModelSpeed& speed) {
  const double rate = part.work.operations / part.seconds.median;
  return {{"part", key_of(part.part)},
          {"ms", spread_json(part.seconds, kMilli)},
          {"operations", part.work.operations},
          {"gflop_per_second", rate / kGiga},
          {"share_of_products", rate / speed.products.rate.median}};
}

ordered_json step_json(const StepSpeed& step, const BenchReport& report) {
  const StepFigures figures = figures_of(step, report.speed);
  ordered_json json{{"tokens", step.tokens},
                    {"ms", spread_json(step.seconds, kMilli)},
                    {"relative", figures.relative},
                    {"weight_bytes", step.work.weight_bytes},
                    {"cache_bytes", step.work.cache_bytes},
                    {"operations", step.work.operations},
                    {"gb_per_second", figures.bytes_a_second / kGiga},
                    {"share_of_memory", figures.memory_share},
                    {"gflop_per_second", figures.operations_a_second / kGiga},
                    {"roofline_ms", kMilli * figures.least_seconds},
                    {"share_of_roofline", figures.roofline_share},
                    {"allocations", nullptr},
                    {"allocations_per_token", nullptr},
                    {"allocated_bytes", nullptr}};
  if (!step.allocations) return json;
  const auto tokens = static_cast<double>(step.tokens * report.curve.rows);
  json["allocations"] = step.allocations->calls;
  json["allocations_per_token"] = static_cast<double>(step.allocations->calls) / tokens;
  json["allocated_bytes"] = step.allocations->bytes;
  return json;
}

ordered_json rate_json(const infer::RateSpeed& rate, const char* unit) {
  return {{"what", rate.description}, {unit, spread_json(rate.rate, 1 / kGiga)}};
}

}  // namespace

std::string bench_text(const BenchReport& report) {
  const infer::StepCurve& where = report.curve;
  const infer::Work& work = report.speed.steps.front().work;
  std::string text = fmt::format("{}\n{}; {}, batch {}\n", where.model, report.architecture, where.dtype, where.rows);
  text += fmt::format("{}, {} {}; medians of {} rounds, 10th and 90th percentile\n\n", where.processor, where.threads,
                      where.threads == 1 ? "thread" : "threads", report.question.rounds);
  text += machine_table(report.speed) + "\n" + prompt_table(report) + "\n";
  text += fmt::format("Steps after {} tokens; one of one token reads {} of weights, {} of keys and values.\n",
                      where.length, human_bytes(static_cast<uint64_t>(work.weight_bytes)),
                      human_bytes(static_cast<uint64_t>(work.cache_bytes)));
  return text + step_table(report.speed) + notes(report);
}

ordered_json bench_json(const BenchReport& report) {
  const infer::StepCurve& where = report.curve;
  ordered_json json{{"environment", environment()},
                    {"model", where.model},
                    {"architecture", report.architecture},
                    {"dtype", where.dtype},
                    {"device", report.device},
                    {"processor", where.processor},
                    {"threads", where.threads},
                    {"batch", where.rows},
                    {"length", where.length},
                    {"source_length", report.question.source},
                    {"rounds", report.question.rounds},
                    {"memory", rate_json(report.speed.memory, "gb_per_second")},
                    {"products", rate_json(report.speed.products, "gflop_per_second")},
                    {"prompt", ordered_json::array()},
                    {"steps", ordered_json::array()}};
  for (const PromptSpeed& part : report.speed.prompt) json["prompt"].push_back(prompt_json(part, report.speed));
  for (const StepSpeed& step : report.speed.steps) json["steps"].push_back(step_json(step, report));
  return json;
}

}  // namespace draftsmith::cli
