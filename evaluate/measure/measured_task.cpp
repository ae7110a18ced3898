#include "evaluate/measure/measured_task.h"

#include <algorithm>
#include <exception>
#include <new>
#include <set>
#include <stdexcept>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "base/files.h"
#include "base/logging.h"
#include "base/signals.h"
#include "infer/windows/window_rules.h"

namespace draftsmith::evaluate {
namespace {

constexpr size_t kLongestMessage = 400;  // bytes: messages of memory managers go on with advice

std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  const auto doubled = std::ranges::unique(text, [](char a, char b) { return a == ' ' && b == ' '; });
  text.erase(doubled.begin(), doubled.end());
  return text.size() <= kLongestMessage ? text : text.substr(0, text.rfind(' ', kLongestMessage)) + " ...";
}

// Returns why a setting has no results: its own message, or that of a setting it is compared with; nothing if it has.
std::optional<std::string> reason(const Setting& setting, const std::map<std::string, std::string>& failed) {
  if (const auto own = failed.find(setting.label); own != failed.end()) return own->second;
  std::vector<std::string> others{baseline_of(setting).label};
  if (compares_with_own_greedy(setting)) others.push_back(greedy_of(setting).label);
  for (const std::string& other : others) {
    const auto found = failed.find(other);
    if (found != failed.end()) return fmt::format("{}, which it is compared with, failed: {}", other, found->second);
  }
  return std::nullopt;
}

// Returns whether a setting's windows go on from batch to batch, so that its batches must be counted in order.
bool carries(const Setting& setting) {
  return setting.decode.drafts() && infer::window_traits(setting.decode).carries;
}

// Adds the setting's records, from the store or by decoding.
void count_setting(const Setting& setting, Engine& engine, MeasurementStore& store, Progress& progress,
                   MeasuredTask& task) {
  SettingRecords& records = task.records[setting.label];
  for (int64_t first = 0; first < task.lines(); first = std::ssize(records)) {
    const MeasurementStore::Name name{"counts", task.key, measured_name(setting), std::to_string(first)};
    if (const nlohmann::json* known = store.find(name)) {
      for (const auto& record : *known) records.push_back(LineRecord::from_counts(record));
    } else {
      work_point();
      nlohmann::json counted = nlohmann::json::array();
      for (LineRecord& record : engine.decode(setting, {task.batch(setting, first), first, task.max_new_tokens, true,
                                                        first_window(setting, records, first)})) {
        counted.push_back(record.counts_json());
        record.repetitions.clear();
        record.latencies.clear();
        records.push_back(std::move(record));
      }
      store.add(name, std::move(counted));
    }
    progress.advance(std::ssize(records) - first);
  }
}

using Outputs = std::vector<std::vector<int64_t>>;

Outputs greedy_outputs(const MeasuredTask& task, const Setting& setting, size_t lines) {
  Outputs outputs;
  for (size_t line = 0; line < lines; ++line) outputs.push_back(task.own_greedy(setting)[line].ids);
  return outputs;
}

// Returns outputs of the setting's own model for these prompts, sampled at temperature 1.
Outputs sampled_outputs(const MeasuredTask& task, const Setting& setting, std::span<const Prompt> prompts,
                        Engine& engine) {
  Outputs outputs;
  const auto together = static_cast<size_t>(task.batch_size);
  for (size_t first = 0; first < prompts.size(); first += together) {
    work_point();
    const auto batch = prompts.subspan(first, std::min(together, prompts.size() - first));
    const DecodeBatch sampling{batch, static_cast<int64_t>(first), task.max_new_tokens, false};
    for (LineRecord& record : engine.decode(sampling_of(setting), sampling)) outputs.push_back(std::move(record.ids));
  }
  return outputs;
}

}  // namespace

std::span<const Prompt> MeasuredTask::batch(const Setting& setting, int64_t first_line) const {
  const int64_t rows = std::min(batch_size_of(setting), lines() - first_line);
  return {prompts.data() + first_line, static_cast<size_t>(rows)};
}

const Setting& MeasuredTask::setting(const std::string& label) const {
  return *std::ranges::find(settings, label, &Setting::label);
}

const SettingRecords& MeasuredTask::own_greedy(const Setting& setting) const {
  const auto own = records.find(greedy_of(setting).label);
  return own == records.end() ? records.at(kGreedyLabel) : own->second;
}

std::optional<std::string> failure_of(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const Interrupted&) {
    throw;
  } catch (const c10::Error& error) {
    return one_line(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::logic_error& error) {
    return one_line(std::string("internal error: ") + error.what());
  } catch (const std::exception& error) {
    return one_line(error.what());
  }
}

void try_setting(const Setting& setting, const std::string& during, const std::function<void()>& work,
                 std::map<std::string, std::string>& failed) {
  if (setting.is_greedy_baseline()) return work();
  const auto message = failure_of(work);
  if (!message) return;
  log_warning("{} failed during {}: {}", setting.label, during, *message);
  failed[setting.label] = *message;
}

void remove_failed(const std::map<std::string, std::string>& failed, const std::string& during, MeasuredTask& task) {
  if (failed.empty()) return;
  std::erase_if(task.chosen, [&](const ChosenSetting& chosen) {
    const Setting& setting = task.setting(chosen.setting);
    const auto message = reason(setting, failed);
    if (message) task.failures.push_back({chosen_label(setting.group, chosen.max_drop), during, *message});
    return message.has_value();
  });
  std::erase_if(task.settings, [&](const Setting& setting) {
    const auto message = reason(setting, failed);
    if (!message) return false;
    if (task.has_row(setting)) task.failures.push_back({setting.label, during, *message});
    task.records.erase(setting.label);
    return true;
  });
}

std::string measured_name(const Setting& setting) {
  return setting.label + " " + sha256(setting.method() + setting.params().dump()).substr(0, 8);
}

std::optional<int64_t> first_window(const Setting& setting, const SettingRecords& records, int64_t first_line) {
  if (!carries(setting) || first_line == 0) return std::nullopt;
  return records.at(static_cast<size_t>(first_line - 1)).window;
}

void count_outputs(Engine& engine, MeasurementStore& store, MeasuredTask& task) {
  Progress progress(
      {.title = "evaluating " + task.task->name, .unit = "outputs", .total = task.lines() * std::ssize(task.settings)},
      kHowToGoOn);
  std::map<std::string, std::string> failed;
  for (const Setting& setting : task.settings) {
    try_setting(
        setting, "decoding", [&] { count_setting(setting, engine, store, progress, task); }, failed);
  }
  progress.finish();
  remove_failed(failed, "decoding", task);
}

void measure_forced_alphas(const SuiteOptions& options, Engine& engine, MeasuredTask& task) {
  const auto lines = static_cast<size_t>(std::min(options.forced_lines, task.lines()));
  const auto prompts = std::span(task.prompts).first(lines);
  std::map<std::string, Outputs> sampled;  // by model
  std::set<std::string> seen;
  Progress work({.title = "drafters teacher-forced on " + task.task->name}, kHowToGoOn);
  for (const Setting& setting : task.settings) {
    const std::string drafter = setting.drafter_label();
    if (lines == 0 || drafter.empty() || typical_lines(task.own_greedy(setting)).empty()) continue;
    if (!seen.insert(drafter).second) continue;
    work_point();
    const auto message = failure_of([&] {
      if (!sampled.contains(setting.model)) {
        sampled[setting.model] = sampled_outputs(task, setting, prompts, engine);
      }
      const infer::ForcedAlpha greedy = engine.forced_alpha(setting, prompts, greedy_outputs(task, setting, lines));
      task.forced_sampled[drafter] = engine.forced_alpha(setting, prompts, sampled.at(setting.model));
      if (!task.forced_texts.outputs.empty()) {
        task.predicted[drafter] = engine.forced_alpha(setting, task.forced_texts.prompts, task.forced_texts.outputs);
      }
      task.forced[drafter] = greedy;
    });
    if (message) task.failures.push_back({"drafter " + drafter, "teacher-forced passes", *message});
  }
}

}  // namespace draftsmith::evaluate
