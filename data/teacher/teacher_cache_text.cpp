#include <fmt/format.h>

#include "base/files.h"
#include "base/table.h"
#include "data/teacher/teacher_cache.h"

namespace draftsmith::data {

namespace {

// Writes each loss over all ids, and for each k its value and the difference.
std::string truncation_table(const TruncationError& truncation) {
  std::vector<Column> columns = {{"k"}, {"rest"}};
  for (const char* loss : kTruncationLosses) {
    columns.push_back({loss});
    columns.push_back({"error"});
  }
  Table table(std::move(columns));
  std::vector<std::string> exact = {"all ids", ""};
  for (const double loss : truncation.exact) exact.insert(exact.end(), {fmt::format("{:.5f}", loss), ""});
  table.add_row(exact);
  for (const TruncationRow& row : truncation.rows) {
    std::vector<std::string> cells = {std::to_string(row.k), fmt::format("{:.5f}", row.tail_mass)};
    for (size_t i = 0; i < row.losses.size(); ++i) {
      const double error = row.losses[i] - truncation.exact[i];
      cells.push_back(fmt::format("{:.5f}", row.losses[i]));
      cells.push_back(truncation.exact[i] > 0 ? fmt::format("{:+.2f}%", 100 * error / truncation.exact[i]) : "");
    }
    table.add_row(cells);
  }
  return table.text();
}

}  // namespace

std::string describe_teacher_cache(const TeacherCacheInfo& info) {
  std::string text = fmt::format("teacher cache of {} examples, {} positions\n", info.examples, info.positions);
  const int64_t bytes = teacher_bytes_per_position(info.k, info.vocabulary);
  text += fmt::format("  {} of {} ids a position{}, {} bytes each, {} in all\n", info.k, info.vocabulary,
                      info.whole() ? " (whole distributions)" : "", bytes,
                      human_bytes(static_cast<uint64_t>(bytes * info.positions)));
  text += fmt::format("  temperature {}\n", info.temperature);
  text += fmt::format("  teacher sha256 {}, corpus {}, tokenizer {}\n", info.teacher_hash.substr(0, 16),
                      info.corpus_hash.substr(0, 16), info.tokenizer_hash.substr(0, 16));
  for (const auto& [key, value] : info.provenance) text += fmt::format("  {}: {}\n", key, cut_to_width(value, 80));
  if (!info.truncation) return text;
  text += fmt::format(
      "  loss as a student reads it from k ids, the label and one bucket for the rest, in fp16;\n"
      "  means over {} positions, q of {}:\n",
      info.truncation->positions, cut_to_width(info.truncation->student, 70));
  return text + truncation_table(*info.truncation);
}

}  // namespace draftsmith::data
