#include "data/teacher/teacher_cache.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/files.h"
#include "base/table.h"
#include "base/util.h"

namespace draftsmith::data {
namespace {

// A limit beyond any use; products of two still fit int64.
constexpr int64_t kMostIds = int64_t{1} << 24;
constexpr int64_t kMostCachedPositions = int64_t{1} << 38;
// Rounding to fp16 changes a mass of 1 by at most the entropy times 2^-11, which is below .007 for 2^20 ids.
constexpr double kRounding = 0.01;

double cache_temperature(const Hdf5Reader& input) {
  const std::string text = input.text("temperature");
  const double value = parse_whole<double>(text).value_or(0);
  input.check(std::isfinite(value) && value > 0, "attribute temperature", "a number above 0", text);
  return value;
}

TeacherCacheInfo cache_attributes(const Hdf5Reader& input) {
  const int64_t vocabulary = input.number("vocabulary", 1, kMostIds);
  return {.k = input.number("k", 1, vocabulary),
          .vocabulary = vocabulary,
          .examples = input.number("examples", 0, kMostCachedPositions),
          .positions = input.number("positions", 0, kMostCachedPositions),
          .temperature = cache_temperature(input),
          .tokenizer_hash = input.text("tokenizer_hash"),
          .teacher_hash = input.text("teacher_hash"),
          .corpus_hash = input.text("corpus_hash"),
          .provenance = input.provenance()};
}

// Returns the exact value; infinities and NaN are infinite.
float half_to_float(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f, mantissa = bits & 0x3ff;
  const float size = exponent == 31  ? std::numeric_limits<float>::infinity()
                     : exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                     : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return (bits & 0x8000u) != 0 ? -size : size;
}

// `first`: index of the ids' first among all.
void check_cached_ids(const Hdf5Reader& input, const TeacherCacheInfo& info, std::span<const int32_t> ids,
                      size_t first) {
  int64_t least = 0;  // ids ascend
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < least || ids[i] >= info.vocabulary) {
      input.check(false, fmt::format("/teacher/ids[{}]", first + i),
                  fmt::format("an id from {} to {}, ascending", least, info.vocabulary - 1), std::to_string(ids[i]));
    }
    least = ids[i] + 1;
  }
}

// Checks the ids, the logs, and the probability of each position. Composes an error's text only if there is an error.
void check_distributions(const Hdf5Reader& input, const TeacherCacheInfo& info, const TeacherRows& rows) {
  std::vector<float> exponentials(size_t{1} << 16);  // of each fp16 value
  for (size_t bits = 0; bits < exponentials.size(); ++bits) {
    const float value = half_to_float(static_cast<uint16_t>(bits));
    exponentials[bits] = std::isfinite(value) && value <= 0 ? std::exp(value) : -1;  // -1: not a log-probability
  }
  const auto mass = [&](const char* name, std::span<const uint16_t> logs, size_t index) {
    const float value = exponentials[logs[index]];
    if (value < 0) {
      input.check(false, fmt::format("{}[{}]", name, index), "a finite log-probability, at most 0",
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
      check_cached_ids(input, info, rows.ids.subspan(position * k, k), position * k);
      sum += mass("/teacher/tail_log_mass", rows.tail_log_mass, position);
      label = mass("/teacher/label_log_probs", rows.label_log_probs, position);
    }
    // The label may be one of the k ids.
    if (sum > 1 + kRounding || sum + label < 1 - kRounding) {
      input.check(false, fmt::format("probability at position {}", position), "1, but for the rounding of fp16",
                  fmt::format("{:.4f}", sum + (sum < 1 ? label : 0)));
    }
  }
}

}  // namespace

TeacherCache::TeacherCache(const std::filesystem::path& file) : file_(file) {
  const Hdf5Reader input(file, kTeacherCacheFormat);
  info_ = cache_attributes(input);
  mapping_ = input.mapping();
  if (!input.has("/states/layers")) mapping_.will_need();  // states are read by example
  offsets_ = input.offsets("/teacher/offsets", info_.examples, info_.positions);
  all_.log_probs = input.values<uint16_t>("/teacher/log_probs", {info_.positions, info_.k});
  if (!info_.whole()) {
    all_.ids = input.values<int32_t>("/teacher/ids", {info_.positions, info_.k});
    all_.label_log_probs = input.values<uint16_t>("/teacher/label_log_probs", {info_.positions});
    all_.tail_log_mass = input.values<uint16_t>("/teacher/tail_log_mass", {info_.positions});
  }
  check_distributions(input, info_, all_);
  if (input.has("/states/layers")) map_states(input);
}

void TeacherCache::map_states(const Hdf5Reader& input) {
  const auto layers = input.values<int64_t>("/states/layers", {-1});
  info_.states = {.layers = {layers.begin(), layers.end()}, .width = input.number("state_width", 1, kMostIds)};
  all_.states = input.values<BFloat16>("/states/rows", {-1, info_.states.width});
  info_.states.rows = std::ssize(all_.states) / info_.states.width;
  state_offsets_ = input.offsets("/states/offsets", info_.examples, info_.states.rows);
}

int64_t TeacherCache::positions(int64_t example) const {
  const auto at = static_cast<size_t>(example);
  return offsets_[at + 1] - offsets_[at];
}

TeacherRows TeacherCache::rows(int64_t example) const {
  const auto at = static_cast<size_t>(example);
  TeacherRows rows = all_.part(static_cast<size_t>(offsets_[at]), static_cast<size_t>(positions(example)),
                               static_cast<size_t>(info_.k));
  if (!info_.states.any()) return rows;
  const int64_t first = state_offsets_[at] * info_.states.width, end = state_offsets_[at + 1] * info_.states.width;
  rows.states = all_.states.subspan(static_cast<size_t>(first), static_cast<size_t>(end - first));
  constexpr uint16_t kExponent = 0x7f80;  // all its bits are 1: infinity or NaN
  const auto finite = [](BFloat16 value) { return (static_cast<uint16_t>(value) & kExponent) != kExponent; };
  if (std::ranges::count_if(rows.states, finite) == end - first) return rows;
  const int64_t bad = first + (std::ranges::find_if_not(rows.states, finite) - rows.states.begin());
  throw UserError({file_.string(), fmt::format("/states/rows: value {}, of example {}", bad, example),
                   "a finite number", "infinity or NaN",
                   fmt::format("make the file again with {}", kTeacherCacheFormat.remake)});
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

std::string describe_teacher_cache(const TeacherCacheInfo& info) {
  std::string text = fmt::format("teacher cache of {} examples, {} positions\n", info.examples, info.positions);
  const int64_t bytes = info.bytes_per_position();
  text += fmt::format("  {} of {} ids a position{}, {} bytes each, {} in all\n", info.k, info.vocabulary,
                      info.whole() ? " (whole distributions)" : "", bytes,
                      human_bytes(static_cast<uint64_t>(bytes * info.positions)));
  if (const StateForm& states = info.states; states.any()) {
    text += fmt::format("  states of layers {} in {} rows of {}, {} in all\n", fmt::join(states.layers, ", "),
                        states.rows, states.width, human_bytes(static_cast<uint64_t>(2 * states.rows * states.width)));
  }
  text += fmt::format("  temperature {}\n", info.temperature);
  text += fmt::format("  teacher sha256 {}, corpus {}, tokenizer {}\n", info.teacher_hash.substr(0, 16),
                      info.corpus_hash.substr(0, 16), info.tokenizer_hash.substr(0, 16));
  for (const auto& [key, value] : info.provenance) text += fmt::format("  {}: {}\n", key, cut_to_width(value, 80));
  return text;
}

void write_teacher_cache(const std::filesystem::path& file, const TeacherCacheInfo& info,
                         std::span<const TeacherRows> examples) {
  const auto k = static_cast<size_t>(info.k);
  std::vector<int64_t> offsets = {0}, state_offsets = {0};
  for (const TeacherRows& rows : examples) {
    const size_t positions = rows.log_probs.size() / k;
    const size_t others = info.whole() ? 0 : positions;
    if (rows.log_probs.size() != positions * k || rows.ids.size() != others * k ||
        rows.label_log_probs.size() != others || rows.tail_log_mass.size() != others) {
      throw std::logic_error("rows of a teacher cache that do not belong together");
    }
    offsets.push_back(offsets.back() + static_cast<int64_t>(positions));
    state_offsets.push_back(state_offsets.back() + std::ssize(rows.states) / std::max<int64_t>(1, info.states.width));
  }
  Hdf5Writer output(file);
  const auto write = [&]<class T>(const char* name, std::span<const T> TeacherRows::*rows_of, int64_t columns = 0) {
    output.write_array(name, from_each(examples, rows_of), columns);
  };
  if (!info.whole()) {
    write("/teacher/ids", &TeacherRows::ids, info.k);
    write("/teacher/label_log_probs", &TeacherRows::label_log_probs);
    write("/teacher/tail_log_mass", &TeacherRows::tail_log_mass);
  }
  write("/teacher/log_probs", &TeacherRows::log_probs, info.k);
  output.write_array("/teacher/offsets", std::span<const int64_t>(offsets));
  if (info.states.any()) {
    write("/states/rows", &TeacherRows::states, info.states.width);
    output.write_array("/states/offsets", std::span<const int64_t>(state_offsets));
    output.write_array("/states/layers", std::span<const int64_t>(info.states.layers));
    output.set_attribute("/", "state_width", info.states.width);
  }
  output.set_format(kTeacherCacheFormat, info.provenance);
  output.set_attribute("/", "k", info.k);
  output.set_attribute("/", "vocabulary", info.vocabulary);
  output.set_attribute("/", "examples", std::ssize(examples));
  output.set_attribute("/", "positions", offsets.back());
  output.set_attribute("/", "temperature", fmt::format("{}", info.temperature));
  output.set_attribute("/", "tokenizer_hash", info.tokenizer_hash);
  output.set_attribute("/", "teacher_hash", info.teacher_hash);
  output.set_attribute("/", "corpus_hash", info.corpus_hash);
  output.finish();
}

void merge_teacher_caches(const std::vector<std::filesystem::path>& parts, const std::filesystem::path& file,
                          const TeacherCacheInfo& info) {
  std::vector<TeacherCache> shards;
  std::vector<TeacherRows> examples;
  for (const auto& part : parts) {
    const TeacherCache& shard = shards.emplace_back(part);
    for (int64_t i = 0; i < shard.info().examples; ++i) examples.push_back(shard.rows(i));
  }
  write_teacher_cache(file, info, examples);
}

}  // namespace draftsmith::data
