#include "data/teacher/teacher_cache.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "base/sha256.h"
#include "base/table.h"
#include "base/util.h"
#include "data/hdf5/hdf5.h"

namespace draftsmith::data {

namespace {

constexpr Hdf5Format kTeacherCacheFormat{"draftsmith teacher cache", 1, "a teacher cache",
                                         "a stage of kind teacher-logits"};
// A limit beyond any use; products of two still fit int64.
constexpr int64_t kMostIds = int64_t{1} << 24;
constexpr int64_t kMostCachedPositions = int64_t{1} << 38;
// Rounding to fp16 changes a mass of 1 by at most the entropy times 2^-11, which is below .007 for 2^20 ids.
constexpr double kRounding = 0.01;
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

  // Checks the ids, the logs, and the probability of each position. Composes an error's text only if there is an error.
  void check_values(const TeacherCacheInfo& info, const TeacherRows& rows) const {
    std::vector<float> exponentials(size_t{1} << 16);  // of each fp16 value
    for (size_t bits = 0; bits < exponentials.size(); ++bits) {
      const float value = half_to_float(static_cast<uint16_t>(bits));
      exponentials[bits] = std::isfinite(value) && value <= 0 ? std::exp(value) : -1;  // -1: not a log-probability
    }
    const auto mass = [&](const char* name, std::span<const uint16_t> logs, size_t index) {
      const float value = exponentials[logs[index]];
      if (value < 0) {
        check(false, fmt::format("{}[{}]", name, index), "a finite log-probability, at most 0",
              fmt::format("{}", half_to_float(logs[index])));
      }
      return static_cast<double>(value);
    };
    const auto k = static_cast<size_t>(info.k);
    for (size_t position = 0; position < static_cast<size_t>(info.positions); ++position) {
      double sum = 0;
      double label = 0;
      for (size_t i = position * k; i < (position + 1) * k; ++i) sum += mass("/teacher/log_probs", rows.log_probs, i);
      if (!info.whole()) {
        check_ids(info, rows.ids.subspan(position * k, k), position * k);
        sum += mass("/teacher/tail_log_mass", rows.tail_log_mass, position);
        label = mass("/teacher/label_log_probs", rows.label_log_probs, position);
      }
      // The label may be one of the k ids.
      if (sum > 1 + kRounding || sum + label < 1 - kRounding) {
        check(false, fmt::format("probability at position {}", position), "1, but for the rounding of fp16",
              fmt::format("{:.4f}", sum + (sum < 1 ? label : 0)));
      }
    }
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

  // `first`: index of the ids' first among all.
  void check_ids(const TeacherCacheInfo& info, std::span<const int32_t> ids, size_t first) const {
    int64_t least = 0;  // ids ascend
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < least || ids[i] >= info.vocabulary) {
        check(false, fmt::format("/teacher/ids[{}]", first + i),
              fmt::format("an id from {} to {}, ascending", least, info.vocabulary - 1), std::to_string(ids[i]));
      }
      least = ids[i] + 1;
    }
  }
};

// Returns the attributes of a cache without reading its rows.
TeacherCacheInfo read_teacher_cache_info(const std::filesystem::path& file) {
  const Hdf5Reader input(file);
  return CacheReader(input).info();
}

}  // namespace

TeacherCache::TeacherCache(const std::filesystem::path& file) : file_(file) {
  const Hdf5Reader input(file);
  const CacheReader reader(input);
  info_ = reader.info();
  offsets_ = reader.offsets(info_);
  mapping_ = MappedFile(file);
  mapping_.will_need();
  all_ = reader.rows(info_, mapping_);
  reader.check_values(info_, all_);
}

int64_t TeacherCache::positions(int64_t example) const {
  const auto at = static_cast<size_t>(example);
  return offsets_.at(at + 1) - offsets_.at(at);
}

TeacherRows TeacherCache::rows(int64_t example) const {
  const auto first = static_cast<size_t>(offsets_[static_cast<size_t>(example)]);
  return all_.part(first, static_cast<size_t>(positions(example)), static_cast<size_t>(info_.k));
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

void TeacherCacheWriter::add(const TeacherRows& example) {
  const auto k = static_cast<size_t>(info_.k);
  const bool whole = info_.whole();
  const size_t positions = example.log_probs.size() / k;
  const size_t others = whole ? 0 : positions;
  if (example.log_probs.size() != positions * k || example.ids.size() != others * k ||
      example.label_log_probs.size() != others || example.tail_log_mass.size() != others) {
    throw std::logic_error("rows of a teacher cache that do not belong together");
  }
  output_.append(log_probs_, example.log_probs);
  if (!whole) {
    output_.append(ids_, example.ids);
    output_.append(labels_, example.label_log_probs);
    output_.append(tails_, example.tail_log_mass);
  }
  offsets_.push_back(offsets_.back() + static_cast<int64_t>(positions));
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

void ShardedTeacherCache::add_shard(const ShardRange& range, std::span<const TeacherRows> examples) {
  if (merged()) throw std::logic_error("examples added to a teacher cache that is finished");
  if (std::ssize(examples) != range.size()) throw std::logic_error("shard " + range.text() + " has other examples");
  TeacherCacheInfo info = info_;
  info.provenance[ShardRange::kKey] = range.text();
  info.positions = 0;
  for (const TeacherRows& rows : examples) info.positions += static_cast<int64_t>(rows.log_probs.size()) / info.k;
  TeacherCacheWriter writer(shards_.place(range), info);
  for (const TeacherRows& rows : examples) writer.add(rows);
  writer.finish();
  shards_.add(range);
}

void ShardedTeacherCache::finish() {
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
    writer.finish();
  }
  shards_.remove();
}

}  // namespace draftsmith::data
