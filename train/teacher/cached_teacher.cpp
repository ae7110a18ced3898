#include "train/teacher/cached_teacher.h"

#include <cstring>
#include <stdexcept>
#include <vector>

#include "base/device_tensors.h"
#include "train/teacher/teacher_rows.h"

namespace draftsmith::train {

namespace {

using data::TeacherRows;

at::Tensor empty_rows(int64_t count, int64_t columns, at::ScalarType type) {
  return columns == 0 ? at::empty({count}, type) : at::empty({count, columns}, type);
}

// Copies values to row `at` of a tensor of rows.
template <class T>
void copy_into(at::Tensor& rows, int64_t at, std::span<const T> values) {
  if (values.empty()) return;
  std::memcpy(static_cast<char*>(rows.data_ptr()) + at * rows.stride(0) * static_cast<int64_t>(sizeof(T)),
              values.data(), values.size_bytes());
}

// A batch's top-k rows: copied together, since they are small beside its activations, and moved once.
class TopKRows : public TeacherDistributions {
 public:
  TopKRows(const data::TeacherCache& cache, const Batch& batch) {
    const int64_t count = batch.label_count();
    const int64_t k = cache.info().k;
    StoredRows rows{.ids = empty_rows(count, k, at::kInt),
                    .log_probs = empty_rows(count, k, at::kHalf),
                    .label_log_probs = empty_rows(count, 0, at::kHalf),
                    .tail_log_mass = empty_rows(count, 0, at::kHalf)};
    int64_t at = 0;
    for (const int64_t example : batch.examples) {
      const TeacherRows stored = cache.rows(example);
      copy_into(rows.ids, at, stored.ids);
      copy_into(rows.log_probs, at, stored.log_probs);
      copy_into(rows.label_log_probs, at, stored.label_log_probs);
      copy_into(rows.tail_log_mass, at, stored.tail_log_mass);
      at += cache.positions(example);
    }
    const at::Device device = batch.labels.device();
    all_ = read_rows({.ids = upload(rows.ids, device),
                      .log_probs = upload(rows.log_probs, device),
                      .label_log_probs = upload(rows.label_log_probs, device),
                      .tail_log_mass = upload(rows.tail_log_mass, device)},
                     batch.labels, cache.info().temperature);
  }

  TeacherBlock block(const at::Tensor& positions) override {
    return {.ids = all_.ids.index_select(0, positions),
            .log_probs = all_.log_probs.index_select(0, positions),
            .tail_log_mass = all_.tail_log_mass.index_select(0, positions)};
  }

 private:
  TeacherBlock all_;
};

// Whole distributions, copied from the mapped file a block at a time.
class WholeRows : public TeacherDistributions {
 public:
  WholeRows(const data::TeacherCache& cache, const Batch& batch) : cache_(cache), labels_(batch.labels) {
    for (const int64_t example : batch.examples) {
      const auto logs = cache.rows(example).log_probs;
      const auto width = static_cast<size_t>(cache.info().k);
      for (size_t first = 0; first < logs.size(); first += width) rows_.push_back(logs.subspan(first, width));
    }
  }

  TeacherBlock block(const at::Tensor& positions) override {
    const at::Tensor wanted = positions.to(at::kCPU).contiguous();
    at::Tensor logs = empty_rows(wanted.size(0), cache_.info().k, at::kHalf);
    for (int64_t i = 0; i < wanted.size(0); ++i) {
      copy_into(logs, i, rows_.at(static_cast<size_t>(wanted.data_ptr<int64_t>()[i])));
    }
    return read_rows({.log_probs = upload(logs, labels_.device())}, labels_, cache_.info().temperature);
  }

 private:
  const data::TeacherCache& cache_;
  at::Tensor labels_;
  std::vector<std::span<const uint16_t>> rows_;  // of each label
};

}  // namespace

std::optional<double> CachedTeacher::temperature() const {
  if (cache_.info().whole()) return std::nullopt;
  return cache_.info().temperature;
}

std::unique_ptr<TeacherDistributions> CachedTeacher::distributions(const Batch& batch) {
  int64_t positions = 0;
  for (const int64_t example : batch.examples) positions += cache_.positions(example);
  if (positions != batch.label_count()) throw std::logic_error("a teacher cache read for labels of another corpus");
  if (cache_.info().whole()) return std::make_unique<WholeRows>(cache_, batch);
  return std::make_unique<TopKRows>(cache_, batch);
}

}  // namespace draftsmith::train
