#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "data/hdf5/hdf5.h"
#include "data/teacher/teacher_cache.h"

namespace draftsmith::data {

namespace {

constexpr int64_t kMappedAlignment = 8;  // alignment of mapped values in bytes

// Converts to fp32, in which the truncation errors are stored.
std::vector<float> to_floats(const auto& values) {
  return {values.begin(), values.end()};
}

void write_truncation(Hdf5Writer& output, const TruncationError& truncation) {
  std::vector<int64_t> ks;
  std::vector<float> tails;
  const size_t losses = output.create("/truncation/losses", Hdf5Type::kFloat32, kTruncationLosses.size());
  for (const TruncationRow& row : truncation.rows) {
    ks.push_back(row.k);
    tails.push_back(static_cast<float>(row.tail_mass));
    output.append(losses, std::span<const float>(to_floats(row.losses)));
  }
  output.write_array("/truncation/k", std::span<const int64_t>(ks));
  output.write_array("/truncation/tail_mass", std::span<const float>(tails));
  output.write_array("/truncation/exact", std::span<const float>(to_floats(truncation.exact)));
  output.set_attribute("/truncation", "positions", truncation.positions);
  output.set_attribute("/truncation", "student", truncation.student);
}

}  // namespace

struct TeacherCacheWriter::Impl {
  Impl(const std::filesystem::path& file, TeacherCacheInfo about)
      : output(file, kMappedAlignment), info(std::move(about)) {
    if (!info.whole()) {
      ids = output.create_plain("/teacher/ids", Hdf5Type::kInt32, info.positions, info.k);
      labels = output.create_plain("/teacher/label_log_probs", Hdf5Type::kFloat16, info.positions);
      tails = output.create_plain("/teacher/tail_log_mass", Hdf5Type::kFloat16, info.positions);
    }
    log_probs = output.create_plain("/teacher/log_probs", Hdf5Type::kFloat16, info.positions, info.k);
  }

  Hdf5Writer output;
  TeacherCacheInfo info;
  size_t ids = 0;
  size_t log_probs = 0;
  size_t labels = 0;
  size_t tails = 0;
  std::vector<int64_t> offsets = {0};
};

TeacherCacheWriter::TeacherCacheWriter(const std::filesystem::path& file, TeacherCacheInfo info)
    : impl_(std::make_unique<Impl>(file, std::move(info))) {}

TeacherCacheWriter::~TeacherCacheWriter() = default;

void TeacherCacheWriter::add(const TeacherRows& example) {
  const auto k = static_cast<size_t>(impl_->info.k);
  const bool whole = impl_->info.whole();
  const size_t positions = example.log_probs.size() / k;
  const size_t others = whole ? 0 : positions;
  if (example.log_probs.size() != positions * k || example.ids.size() != others * k ||
      example.label_log_probs.size() != others || example.tail_log_mass.size() != others) {
    throw std::logic_error("rows of a teacher cache that do not belong together");
  }
  impl_->output.append(impl_->log_probs, example.log_probs);
  if (!whole) {
    impl_->output.append(impl_->ids, example.ids);
    impl_->output.append(impl_->labels, example.label_log_probs);
    impl_->output.append(impl_->tails, example.tail_log_mass);
  }
  impl_->offsets.push_back(impl_->offsets.back() + static_cast<int64_t>(positions));
}

int64_t TeacherCacheWriter::examples() const {
  return static_cast<int64_t>(impl_->offsets.size()) - 1;
}

void TeacherCacheWriter::finish(const std::map<std::string, std::string>& extra,
                                const std::optional<TruncationError>& truncation) {
  Hdf5Writer& output = impl_->output;
  const TeacherCacheInfo& info = impl_->info;
  output.write_array("/teacher/offsets", std::span<const int64_t>(impl_->offsets));
  output.set_attribute("/", "format", "draftsmith teacher cache");
  output.set_attribute("/", "format_version", TeacherCacheInfo::kFormatVersion);
  output.set_attribute("/", "k", info.k);
  output.set_attribute("/", "vocabulary", info.vocabulary);
  output.set_attribute("/", "examples", examples());
  output.set_attribute("/", "positions", impl_->offsets.back());
  output.set_attribute("/", "temperature", fmt::format("{}", info.temperature));
  output.set_attribute("/", "tokenizer_hash", info.tokenizer_hash);
  output.set_attribute("/", "teacher_hash", info.teacher_hash);
  output.set_attribute("/", "corpus_hash", info.corpus_hash);
  for (const auto& [key, value] : info.provenance) output.set_attribute("/provenance", key, value);
  for (const auto& [key, value] : extra) output.set_attribute("/provenance", key, value);
  if (truncation) write_truncation(output, *truncation);
  output.finish();
}

namespace {

// Returns the difference between a cache and the job that `own` describes, if there is one.
std::optional<ShardDifference> differing(const TeacherCacheInfo& own, const TeacherCacheInfo& found) {
  const auto difference = [](const char* what, const auto& one, const auto& other) {
    return ShardDifference{what, fmt::format("{}", one), fmt::format("{}", other)};
  };
  if (found.tokenizer_hash != own.tokenizer_hash) {
    return difference("tokenizer", own.tokenizer_hash, found.tokenizer_hash);
  }
  if (found.teacher_hash != own.teacher_hash) return difference("teacher", own.teacher_hash, found.teacher_hash);
  if (found.corpus_hash != own.corpus_hash) return difference("corpus", own.corpus_hash, found.corpus_hash);
  if (found.k != own.k || found.vocabulary != own.vocabulary) {
    const auto ids = [](const TeacherCacheInfo& info) { return fmt::format("{} of {}", info.k, info.vocabulary); };
    return difference("number of ids", ids(own), ids(found));
  }
  if (found.temperature != own.temperature) return difference("temperature", own.temperature, found.temperature);
  if (same_job(own.provenance, found.provenance)) return std::nullopt;
  return job_difference(own.provenance, found.provenance);
}

void check_shard(const std::filesystem::path& file, const ShardRange& range, const TeacherCacheInfo& own) {
  const TeacherCache shard(file);
  if (const auto difference = differing(own, shard.info())) refuse_shard(file, *difference);
  check_shard_range(file, range, shard.info().provenance, shard.info().examples);
}

// A merged cache names its job. Any other file with the name is replaced.
bool is_merged(const std::filesystem::path& file, const TeacherCacheInfo& own, int64_t examples) {
  if (!is_teacher_cache(file)) return false;
  const TeacherCacheInfo found = read_teacher_cache_info(file);
  return !differing(own, found) && found.examples == examples;
}

}  // namespace

ShardedTeacherCache::ShardedTeacherCache(const std::filesystem::path& file, TeacherCacheInfo info, int64_t examples)
    : info_(std::move(info)),
      shards_(
          file, examples, [this](const auto& shard, const ShardRange& range) { check_shard(shard, range, info_); },
          [&](const auto& merged) { return is_merged(merged, info_, examples); }) {}

void ShardedTeacherCache::add_shard(const ShardRange& range, std::span<const TeacherRows> examples) {
  if (merged()) throw std::logic_error("examples added to a teacher cache that is finished");
  if (std::ssize(examples) != range.size()) throw std::logic_error("shard " + range.text() + " has other examples");
  TeacherCacheInfo info = info_;
  info.provenance = shard_provenance(std::move(info.provenance), range);
  info.positions = 0;
  for (const TeacherRows& rows : examples) info.positions += static_cast<int64_t>(rows.log_probs.size()) / info.k;
  TeacherCacheWriter writer(shards_.place(range), info);
  for (const TeacherRows& rows : examples) writer.add(rows);
  writer.finish();
  shards_.add(range);
}

void ShardedTeacherCache::finish(const std::map<std::string, std::string>& extra,
                                 const std::optional<TruncationError>& truncation) {
  if (!merged()) {
    shards_.require_complete();
    TeacherCacheInfo info = info_;
    info.positions = 0;
    for (const auto& part : shards_.parts()) info.positions += read_teacher_cache_info(part).positions;
    TeacherCacheWriter writer(shards_.file(), info);
    for (const auto& part : shards_.parts()) {
      const TeacherCache shard(part);
      for (int64_t i = 0; i < shard.info().examples; ++i) writer.add(shard.rows(i));
    }
    writer.finish(extra, truncation);
  }
  shards_.remove();
}

}  // namespace draftsmith::data
