#include "infer/windows/oracle.h"

#include <stdexcept>

namespace draftsmith::infer {

AcceptedLengths::Key AcceptedLengths::key_of(const Row& row) {
  Key key = row.source;
  key.push_back(-1);
  key.insert(key.end(), row.tokens.begin(), row.tokens.begin() + row.prefix);
  key.push_back(row.limit);
  return key;
}

const std::vector<int64_t>* AcceptedLengths::find(const Key& key) const {
  const auto found = lengths_.find(key);
  return found == lengths_.end() ? nullptr : &found->second;
}

void RecordingWindow::begin(std::span<const Row> rows) {
  keys_.clear();
  for (const Row& row : rows) keys_.push_back(AcceptedLengths::key_of(row));
  accepted_.assign(rows.size(), {});
}

void RecordingWindow::observe(int64_t row, const WindowOutcome& outcome) {
  const auto b = static_cast<size_t>(row);
  accepted_[b].push_back(outcome.accepted);
  record_.set(keys_[b], accepted_[b]);
}

void RecordingWindow::select_rows(std::span<const int64_t> rows) {
  keep_rows(keys_, rows);
  keep_rows(accepted_, rows);
}

void OracleWindow::begin(std::span<const Row> rows) {
  rows_.clear();
  for (const Row& row : rows) {
    rows_.push_back({record_.find(AcceptedLengths::key_of(row)), 0});
    if (rows_.back().lengths == nullptr) throw std::logic_error("an oracle window without a record of this output");
  }
}

int64_t OracleWindow::length(int64_t row) const {
  const Replay& replay = rows_[static_cast<size_t>(row)];
  return replay.next < replay.lengths->size() ? (*replay.lengths)[replay.next] : 0;
}

void OracleWindow::observe(int64_t row, const WindowOutcome&) {
  ++rows_[static_cast<size_t>(row)].next;
}

void OracleWindow::select_rows(std::span<const int64_t> rows) {
  keep_rows(rows_, rows);
}

}  // namespace draftsmith::infer
