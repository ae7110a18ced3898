#include "data/teacher/teacher_cache.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/sha256.h"
#include "base/util.h"
#include "data/hdf5/hdf5_checks.h"

namespace draftsmith::data {

namespace {

constexpr Hdf5Format kTeacherCacheFormat{"draftsmith teacher cache", TeacherCacheInfo::kFormatVersion,
                                         "a teacher cache", "a stage of kind teacher-logits"};
// A limit beyond any use; products of two still fit int64.
constexpr int64_t kMostIds = int64_t{1} << 24;
constexpr int64_t kMostCachedPositions = int64_t{1} << 38;
// Rounding to fp16 changes a mass of 1 by at most the entropy times 2^-11, which is below .007 for 2^20 ids.
constexpr double kRounding = 0.01;

// Reads a cache and checks that its parts fit together.
class CacheReader : Hdf5Checks {
 public:
  explicit CacheReader(const Hdf5Reader& input) : Hdf5Checks(input, kTeacherCacheFormat) {}

  TeacherCacheInfo info() const {
    check_format();
    TeacherCacheInfo info;
    info.k = input_.integer_attribute("/", "k");
    info.vocabulary = input_.integer_attribute("/", "vocabulary");
    info.examples = input_.integer_attribute("/", "examples");
    info.positions = input_.integer_attribute("/", "positions");
    info.temperature = temperature();
    info.tokenizer_hash = input_.string_attribute("/", "tokenizer_hash");
    info.teacher_hash = input_.string_attribute("/", "teacher_hash");
    info.corpus_hash = input_.string_attribute("/", "corpus_hash");
    info.provenance = input_.string_attributes("/provenance");
    check_range("vocabulary", info.vocabulary, 1, kMostIds);
    check_range("k", info.k, 1, info.vocabulary);
    check_range("examples", info.examples, 0, kMostCachedPositions);
    check_range("positions", info.positions, 0, kMostCachedPositions);
    if (input_.has("/truncation/k")) info.truncation = truncation();
    return info;
  }

  std::vector<int64_t> offsets(const TeacherCacheInfo& info) const {
    const char* name = "/teacher/offsets";
    check_equal(std::string("number of values in ") + name, info.examples + 1,
                input_.shape(name, Hdf5Type::kInt64, 1)[0]);
    std::vector<int64_t> offsets = input_.read<int64_t>(name);
    int64_t least = 0;
    for (size_t i = 0; i < offsets.size(); ++i) {
      if (offsets[i] < least || offsets[i] > info.positions) {
        check_range(fmt::format("{}[{}]", name, i), offsets[i], least, info.positions);
      }
      least = offsets[i];
    }
    check(offsets.front() == 0 && offsets.back() == info.positions, std::string("ends of ") + name,
          fmt::format("0 and {}", info.positions), fmt::format("{} and {}", offsets.front(), offsets.back()));
    return offsets;
  }

  TeacherRows rows(const TeacherCacheInfo& info, const MappedFile& mapping) const {
    TeacherRows rows;
    rows.log_probs = array<uint16_t>("/teacher/log_probs", {info.positions, info.k}, mapping);
    if (!info.whole()) {
      rows.ids = array<int32_t>("/teacher/ids", {info.positions, info.k}, mapping);
      rows.label_log_probs = array<uint16_t>("/teacher/label_log_probs", {info.positions}, mapping);
      rows.tail_log_mass = array<uint16_t>("/teacher/tail_log_mass", {info.positions}, mapping);
    }
    return rows;
  }

  void check_values(const TeacherCacheInfo& info, const TeacherRows& rows) const {
    std::vector<float> exponentials(size_t{1} << 16);
    for (size_t bits = 0; bits < exponentials.size(); ++bits) {
      const float value = half_to_float(static_cast<uint16_t>(bits));
      exponentials[bits] = std::isfinite(value) && value <= 0 ? std::exp(value) : -1;  // -1: not a log-probability
    }
    const Values values{info, rows, exponentials};
    for (int64_t position = 0; position < info.positions; ++position) check_position(values, position);
  }

 private:
  struct Values {
    const TeacherCacheInfo& info;
    const TeacherRows& rows;
    const std::vector<float>& exponentials;  // exponential of each fp16 value
  };

  double temperature() const {
    const std::string text = input_.string_attribute("/", "temperature");
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    check(error == std::errc() && end == text.data() + text.size() && std::isfinite(value) && value > 0,
          "attribute temperature", "a number above 0", text);
    return value;
  }

  TruncationError truncation() const {
    TruncationError error;
    error.positions = input_.integer_attribute("/truncation", "positions");
    error.student = input_.string_attribute("/truncation", "student");
    const auto ks = input_.read<int64_t>("/truncation/k");
    const auto tails = input_.read<float>("/truncation/tail_mass");
    const auto exact = input_.read<float>("/truncation/exact");
    const auto losses = input_.read<float>("/truncation/losses", 2);
    const size_t columns = kTruncationLosses.size();
    check(tails.size() == ks.size() && exact.size() == columns && losses.size() == ks.size() * columns,
          "sizes of the datasets in /truncation", fmt::format("{} rows of {} losses", ks.size(), columns),
          fmt::format("{} tail masses, {} losses, {} exact ones", tails.size(), losses.size(), exact.size()));
    std::copy(exact.begin(), exact.end(), error.exact.begin());
    for (size_t i = 0; i < ks.size(); ++i) {
      TruncationRow row{.k = ks[i], .tail_mass = tails[i]};
      std::copy_n(losses.begin() + static_cast<std::ptrdiff_t>(i * columns), columns, row.losses.begin());
      error.rows.push_back(row);
    }
    return error;
  }

  template <class T>
  std::span<const T> array(const std::string& name, const std::vector<int64_t>& expected,
                           const MappedFile& mapping) const {
    const auto rank = static_cast<int64_t>(expected.size());
    const std::vector<int64_t> found = input_.shape(name, hdf5_type<T>(), rank);
    for (size_t i = 0; i < expected.size(); ++i) {
      check_equal(i == 0 ? "number of positions in " + name : "number of columns in " + name, expected[i], found[i]);
    }
    const Hdf5Place place = input_.place(name, hdf5_type<T>(), rank);
    return mapping.values<T>(place.offset, place.count);
  }

  // Returns the probability of a stored log. Composes an error's text only if there is an error.
  double mass(const Values& values, const char* name, std::span<const uint16_t> logs, size_t index) const {
    const float value = values.exponentials[logs[index]];
    if (value < 0) {
      check(false, fmt::format("{}[{}]", name, index), "a finite log-probability, at most 0",
            fmt::format("{}", half_to_float(logs[index])));
    }
    return static_cast<double>(value);
  }

  void check_position(const Values& values, int64_t position) const {
    const auto k = static_cast<size_t>(values.info.k);
    const size_t first = static_cast<size_t>(position) * k;
    double sum = 0;
    for (size_t i = first; i < first + k; ++i) sum += mass(values, "/teacher/log_probs", values.rows.log_probs, i);
    double label = 0;
    if (!values.info.whole()) {
      check_ids(values, first);
      const auto at = static_cast<size_t>(position);
      sum += mass(values, "/teacher/tail_log_mass", values.rows.tail_log_mass, at);
      label = mass(values, "/teacher/label_log_probs", values.rows.label_log_probs, at);
    }
    // The label may be one of the k ids.
    if (sum > 1 + kRounding || sum + label < 1 - kRounding) {
      check(false, fmt::format("probability at position {}", position), "1, but for the rounding of fp16",
            fmt::format("{:.4f}", sum + (sum < 1 ? label : 0)));
    }
  }

  void check_ids(const Values& values, size_t first) const {
    int64_t least = 0;  // ids ascend
    for (size_t i = first; i < first + static_cast<size_t>(values.info.k); ++i) {
      const int64_t id = values.rows.ids[i];
      if (id < least || id >= values.info.vocabulary) {
        check(false, fmt::format("/teacher/ids[{}]", i),
              fmt::format("an id from {} to {}, ascending", least, values.info.vocabulary - 1), std::to_string(id));
      }
      least = id + 1;
    }
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
  reader.check_values(info_, all_);
}

int64_t TeacherCache::positions(int64_t example) const {
  const auto at = static_cast<size_t>(example);
  return offsets_.at(at + 1) - offsets_.at(at);
}

TeacherRows TeacherCache::rows(int64_t example) const {
  const auto count = static_cast<size_t>(positions(example));
  const auto first = static_cast<size_t>(offsets_[static_cast<size_t>(example)]);
  const auto k = static_cast<size_t>(info_.k);
  TeacherRows rows{.log_probs = all_.log_probs.subspan(first * k, count * k)};
  if (!info_.whole()) {
    rows.ids = all_.ids.subspan(first * k, count * k);
    rows.label_log_probs = all_.label_log_probs.subspan(first, count);
    rows.tail_log_mass = all_.tail_log_mass.subspan(first, count);
  }
  return rows;
}

int64_t teacher_bytes_per_position(int64_t k, int64_t vocabulary) {
  const auto half = static_cast<int64_t>(sizeof(uint16_t));
  return k == vocabulary ? k * half : k * (half + static_cast<int64_t>(sizeof(int32_t))) + 2 * half;
}

uint64_t teacher_cache_space(const TeacherCacheInfo& info, int64_t positions, int64_t done) {
  const auto each = static_cast<uint64_t>(teacher_bytes_per_position(info.k, info.vocabulary));
  return each * static_cast<uint64_t>(2 * positions - done);
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

TeacherCacheInfo read_teacher_cache_info(const std::filesystem::path& file) {
  const Hdf5Reader input(file);
  return CacheReader(input).info();
}

bool is_teacher_cache(const std::filesystem::path& file) {
  return has_hdf5_format(file, kTeacherCacheFormat.name);
}

}  // namespace draftsmith::data
