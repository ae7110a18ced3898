// Table of throughput and latency of each setting: batches, samples, tokens and sentences a second, and percentiles of
// a sentence's and a token's time.
#include <cmath>

#include <fmt/format.h>

#include "evaluate/report/sections.h"

namespace draftsmith::evaluate {
namespace {

// Returns three significant digits.
std::string significant(double value) {
  if (!std::isfinite(value)) return "";
  return value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:#.3g}", value);
}

// Returns the lines that a setting decodes together; those of the suite where it has none of its own.
std::string batch_of(const SettingResult& setting, const Results& results) {
  const auto& params = setting.params;
  const int64_t suite = results.options.is_object() ? results.options.value("batch_size", int64_t{1}) : 1;
  return std::to_string(params.is_object() ? params.value("batch_size", suite) : suite);
}

std::string samples_of(const SettingResult& setting) {
  return std::to_string(setting.params.is_object() ? setting.params.value("num_samples", int64_t{1}) : 1);
}

std::vector<Column> headers_of(Form form) {
  if (form == Form::kBrief) {
    return {{"run", Align::kLeft}, {"batch"}, {"samples"}, {"tok/s"}, {"sent/s"}, {"sent p50"}, {"p95"}, {"p99"},
            {"tok p50"},           {"p95"},   {"p99"}};
  }
  return {{"setting", Align::kLeft},
          {"batch", Align::kRight, "batch: lines decoded together"},
          {"samples", Align::kRight, "samples: outputs of a line"},
          {"tokens a second"},
          {"sentences a second"},
          {"ms a sentence, median", Align::kRight, "p50"},
          {"95 %", Align::kRight, "p95: 95 % of sentences take at most this"},
          {"99 %", Align::kRight, "p99: 99 % of sentences take at most this"},
          {"ms a token, median", Align::kRight, "p50"},
          {"95 % ", Align::kRight, "p95: 95 % of sentences take at most this for a token"},
          {"99 % ", Align::kRight, "p99: 99 % of sentences take at most this for a token"}};
}

std::vector<Part> throughput_parts(const TaskView& view, Form form) {
  Table table(headers_of(form));
  for (const SettingResult* setting : view.task.rows()) {
    const SpeedResult& speed = setting->speed;
    const auto& [sentence, token] = speed.latency;
    if (!std::isfinite(sentence.p50)) continue;
    table.add_row({setting->name, batch_of(*setting, view.results), samples_of(*setting),
                   significant(speed.tokens_per_second), significant(speed.sentences_per_second),
                   significant(sentence.p50), significant(sentence.p95), significant(sentence.p99),
                   significant(token.p50), significant(token.p95), significant(token.p99)});
  }
  if (table.empty()) return {};
  return {{.caption = "Milliseconds of a sentence and of a token: median, 95 % and 99 % of the timed lines. A sentence "
                      "takes as long as its batch.",
           .table = std::move(table)}};
}

template <double Percentiles::*kPercentile, Percentiles Latency::*kTime>
nlohmann::ordered_json cell(const TaskView& /*view*/, const SettingResult& setting) {
  return csv_number(setting.speed.latency.*kTime.*kPercentile);
}

nlohmann::ordered_json sentences(const TaskView& /*view*/, const SettingResult& setting) {
  return csv_number(setting.speed.sentences_per_second);
}

}  // namespace

Section latency_section() {
  return {.title = "Throughput and latency",
          .parts = throughput_parts,
          .csv = {{"sentences_per_second", sentences},
                  {"sentence_ms_p50", cell<&Percentiles::p50, &Latency::sentence_ms>},
                  {"sentence_ms_p95", cell<&Percentiles::p95, &Latency::sentence_ms>},
                  {"sentence_ms_p99", cell<&Percentiles::p99, &Latency::sentence_ms>},
                  {"token_ms_p50", cell<&Percentiles::p50, &Latency::token_ms>},
                  {"token_ms_p95", cell<&Percentiles::p95, &Latency::token_ms>},
                  {"token_ms_p99", cell<&Percentiles::p99, &Latency::token_ms>}},
          .request = Request::kLatency};
}

}  // namespace draftsmith::evaluate
