#include "data/teacher/teacher_cache.h"

#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "base/sha256.h"
#include "base/table.h"
#include "data/hdf5/hdf5.h"

namespace draftsmith::data {

namespace {

constexpr Hdf5Format kTeacherCacheFormat{"draftsmith teacher cache", 1, "a teacher cache",
                                         "a stage of kind teacher-logits"};
// A limit beyond any use; products of two still fit int64.
constexpr int64_t kMostIds = int64_t{1} << 24;
constexpr int64_t kMostCachedPositions = int64_t{1} << 38;
constexpr int64_t kMappedAlignment = 8;  // alignment of mapped values in bytes

// Reads a cache and checks that its parts fit together.
class CacheReader : Hdf5Checks {
 public:
  explicit CacheReader(const Hdf5Reader& input) : Hdf5Checks(input, kTeacherCacheFormat) {}

  TeacherCacheInfo info() const {
    check_format();
    TeacherCacheInfo info;
    info.vocabulary = number("vocabulary", 1, kMostIds);
    info.k = number("k", 1, info.vocabulary);
    info.examples = number("examples", 0, kMostCachedPositions);
    info.positions = number("positions", 0, kMostCachedPositions);
    info.temperature = temperature();
    info.tokenizer_hash = input_.string_attribute("/", "tokenizer_hash");
    info.teacher_hash = input_.string_attribute("/", "teacher_hash");
    info.corpus_hash = input_.string_attribute("/", "corpus_hash");
    info.provenance = input_.string_attributes("/provenance");
    return info;
  }

  std::vector<int64_t> offsets(const TeacherCacheInfo& info) const {
    const char* name = "/teacher/offsets";
    check_shape(name, Hdf5Type::kInt64, {info.examples + 1});
    std::vector<int64_t> offsets = input_.read<int64_t>(name);
    check_offsets(name, offsets, info.positions);
    return offsets;
  }

  TeacherRows rows(const TeacherCacheInfo& info, const MappedFile& mapping) const {
    TeacherRows rows;
    rows.log_probs = mapped<uint16_t>(mapping, "/teacher/log_probs", {info.positions, info.k});
    if (!info.whole()) {
      rows.ids = mapped<int32_t>(mapping, "/teacher/ids", {info.positions, info.k});
      rows.label_log_probs = mapped<uint16_t>(mapping, "/teacher/label_log_probs", {info.positions});
      rows.tail_log_mass = mapped<uint16_t>(mapping, "/teacher/tail_log_mass", {info.positions});
    }
    return rows;
  }

 private:
  double temperature() const {
    const std::string text = input_.string_attribute("/", "temperature");
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    check(error == std::errc() && end == text.data() + text.size() && std::isfinite(value) && value > 0,
          "attribute temperature", "a number above 0", text);
    return value;
  }
};

}  // namespace

TeacherCache::TeacherCache(const std::filesystem::path& file) : file_(file) {
  const Hdf5Reader input(file);
  const CacheReader reader(input);
  info_ = reader.info();
  offsets_ = reader.offsets(info_);
  mapping_ = MappedFile(file);
  mapping_.will_need();
  all_ = reader.rows(info_, mapping_);
}

int64_t TeacherCache::positions(int64_t example) const {
  const auto at = static_cast<size_t>(example);
  return offsets_.at(at + 1) - offsets_.at(at);
}

TeacherRows TeacherCache::rows(int64_t example, int64_t count) const {
  const auto first = static_cast<size_t>(offsets_.at(static_cast<size_t>(example)));
  const auto end = static_cast<size_t>(offsets_.at(static_cast<size_t>(example + count)));
  return all_.part(first, end - first, static_cast<size_t>(info_.k));
}

int64_t TeacherCacheInfo::bytes_per_position() const {
  const auto half = static_cast<int64_t>(sizeof(uint16_t));
  return whole() ? k * half : k * (half + static_cast<int64_t>(sizeof(int32_t))) + 2 * half;
}

std::string corpus_hash(const Corpus& corpus) {
  Sha256 hash;
  const auto add = [&](std::span<const int32_t> row) {
    const auto length = static_cast<int64_t>(row.size());
    hash.update({reinterpret_cast<const char*>(&length), sizeof(length)});
    hash.update({reinterpret_cast<const char*>(row.data()), row.size_bytes()});
  };
  for (int64_t i = 0; i < corpus.size(); ++i) {
    add(corpus.source(i));
    add(corpus.target(i));
  }
  return hash.hex_digest();
}

bool is_teacher_cache(const std::filesystem::path& file) {
  return has_hdf5_format(file, kTeacherCacheFormat.name);
}

std::string describe_teacher_cache(const TeacherCacheInfo& info) {
  std::string text = fmt::format("teacher cache of {} examples, {} positions\n", info.examples, info.positions);
  const int64_t bytes = info.bytes_per_position();
  text += fmt::format("  {} of {} ids a position{}, {} bytes each, {} in all\n", info.k, info.vocabulary,
                      info.whole() ? " (whole distributions)" : "", bytes,
                      human_bytes(static_cast<uint64_t>(bytes * info.positions)));
  text += fmt::format("  temperature {}\n", info.temperature);
  text += fmt::format("  teacher sha256 {}, corpus {}, tokenizer {}\n", info.teacher_hash.substr(0, 16),
                      info.corpus_hash.substr(0, 16), info.tokenizer_hash.substr(0, 16));
  for (const auto& [key, value] : info.provenance) text += fmt::format("  {}: {}\n", key, cut_to_width(value, 80));
  return text;
}

TeacherCacheWriter::TeacherCacheWriter(const std::filesystem::path& file, TeacherCacheInfo info)
    : output_(file, kMappedAlignment), info_(std::move(info)) {
  if (!info_.whole()) {
    ids_ = output_.create_plain("/teacher/ids", Hdf5Type::kInt32, info_.positions, info_.k);
    labels_ = output_.create_plain("/teacher/label_log_probs", Hdf5Type::kFloat16, info_.positions);
    tails_ = output_.create_plain("/teacher/tail_log_mass", Hdf5Type::kFloat16, info_.positions);
  }
  log_probs_ = output_.create_plain("/teacher/log_probs", Hdf5Type::kFloat16, info_.positions, info_.k);
}

void TeacherCacheWriter::add(const TeacherRows& rows, std::span<const int64_t> lengths) {
  const auto positions = static_cast<size_t>(std::reduce(lengths.begin(), lengths.end()));
  const auto k = static_cast<size_t>(info_.k);
  const size_t others = info_.whole() ? 0 : positions;
  if (rows.log_probs.size() != positions * k || rows.ids.size() != others * k ||
      rows.label_log_probs.size() != others || rows.tail_log_mass.size() != others) {
    throw std::logic_error("rows of a teacher cache that do not belong together");
  }
  output_.append(log_probs_, rows.log_probs);
  if (!info_.whole()) {
    output_.append(ids_, rows.ids);
    output_.append(labels_, rows.label_log_probs);
    output_.append(tails_, rows.tail_log_mass);
  }
  for (const int64_t length : lengths) offsets_.push_back(offsets_.back() + length);
}

void TeacherCacheWriter::finish() {
  output_.write_array("/teacher/offsets", std::span<const int64_t>(offsets_));
  output_.set_format(kTeacherCacheFormat, info_.provenance);
  output_.set_attribute("/", "k", info_.k);
  output_.set_attribute("/", "vocabulary", info_.vocabulary);
  output_.set_attribute("/", "examples", static_cast<int64_t>(offsets_.size()) - 1);
  output_.set_attribute("/", "positions", offsets_.back());
  output_.set_attribute("/", "temperature", fmt::format("{}", info_.temperature));
  output_.set_attribute("/", "tokenizer_hash", info_.tokenizer_hash);
  output_.set_attribute("/", "teacher_hash", info_.teacher_hash);
  output_.set_attribute("/", "corpus_hash", info_.corpus_hash);
  output_.finish();
}

ShardedTeacherCache::ShardedTeacherCache(const std::filesystem::path& file, TeacherCacheInfo info, int64_t examples)
    : info_(std::move(info)), shards_(file, examples, info_.provenance.at(kJob), [](const std::filesystem::path& part) {
        const TeacherCache cache(part);
        return Shards::Content{cache.info().provenance, cache.info().examples};
      }) {}

void ShardedTeacherCache::add_shard(const ShardRange& range, const TeacherRows& rows,
                                    std::span<const int64_t> lengths) {
  if (std::ssize(lengths) != range.size()) throw std::logic_error("shard " + range.text() + " has other examples");
  TeacherCacheInfo info = info_;
  info.provenance[ShardRange::kKey] = range.text();
  info.positions = std::ssize(rows.log_probs) / info.k;
  TeacherCacheWriter writer(shards_.place(range), info);
  writer.add(rows, lengths);
  writer.finish();
  shards_.add(range);
}

void ShardedTeacherCache::finish() {
  if (!merged()) {
    shards_.require_complete();
    TeacherCacheInfo info = info_;
    info.positions = 0;
    for (const auto& part : shards_.parts()) info.positions += CacheReader(Hdf5Reader(part)).info().positions;
    TeacherCacheWriter writer(shards_.file(), info);
    for (const auto& part : shards_.parts()) {
      const TeacherCache shard(part);
      for (int64_t i = 0; i < shard.info().examples; ++i) writer.add(shard.rows(i), std::array{shard.positions(i)});
    }
    writer.finish();
  }
  shards_.remove();
}

}  // namespace draftsmith::data
