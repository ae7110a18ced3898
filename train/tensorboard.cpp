#include "train/tensorboard.h"

#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <optional>

#include "base/files.h"

namespace draftsmith::train {

namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kCrcBytes = 4;
constexpr size_t kFrameBytes = kLengthBytes + 2 * kCrcBytes;
constexpr std::string_view kValidationTag = "validation/";  // begins the tags of validations alone
constexpr std::string_view kEventFilePrefix = "events.out.tfevents.";

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = make_table();

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

template <class Number>
void put(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

template <class Number>
Number get(std::string_view bytes, size_t offset) {
  Number number;
  std::memcpy(&number, bytes.data() + offset, sizeof(number));
  return number;
}

// Wire types of protocol buffers.
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& bytes, uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
}

void put_tag(std::string& bytes, uint32_t field, WireType type) {
  put_varint(bytes, field << 3 | type);
}

void put_bytes(std::string& bytes, uint32_t field, std::string_view content) {
  put_tag(bytes, field, kBytes);
  put_varint(bytes, content.size());
  bytes.append(content);
}

// Event.wall_time
std::string event_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::string event;
  put_tag(event, 1, kFixed64);
  put(event, std::chrono::duration<double>(now).count());
  return event;
}

std::optional<uint64_t> take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

// Event.step of an event that this file's writer wrote; 0 when it has none (the version event).
int64_t step_of(std::string_view event) {
  while (!event.empty()) {
    const auto tag = take_varint(event);
    if (!tag) return 0;
    size_t skip = 0;
    if ((*tag & 7) == kVarint) {
      const auto value = take_varint(event);
      if (!value || (*tag >> 3) == 2) return static_cast<int64_t>(value.value_or(0));
    } else if ((*tag & 7) == kBytes) {
      skip = take_varint(event).value_or(event.size());
    } else {
      skip = (*tag & 7) == kFixed64 ? 8 : 4;
    }
    event.remove_prefix(std::min(skip, event.size()));
  }
  return 0;
}

// Returns the bytes of the leading whole and undamaged records whose steps are at most `last_step`; without
// `validated`, up to that step's validation.
size_t valid_bytes(std::string_view content, int64_t last_step, bool validated) {
  size_t at = 0;
  while (content.size() - at >= kFrameBytes) {
    const auto length = get<uint64_t>(content, at);
    if (length > content.size() - at - kFrameBytes) break;
    const std::string_view event = content.substr(at + kLengthBytes + kCrcBytes, length);
    if (get<uint32_t>(content, at + kLengthBytes + kCrcBytes + length) != masked_crc32c(event)) break;
    const int64_t step = step_of(event);
    if (step > last_step) break;
    if (step == last_step && !validated && event.find(kValidationTag) != std::string_view::npos) break;
    at += kFrameBytes + length;
  }
  return at;
}

std::filesystem::path event_file(const std::filesystem::path& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().filename().string().starts_with(kEventFilePrefix)) return entry.path();
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  return directory / (std::string(kEventFilePrefix) + std::to_string(seconds) + ".draftsmith");
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

EventWriter::EventWriter(const std::filesystem::path& directory, int64_t last_step, bool validated) {
  make_directories(directory);
  file_ = event_file(directory);
  size_t kept = 0;
  if (std::filesystem::exists(file_)) {
    kept = valid_bytes(read_file(file_), last_step, validated);
    std::filesystem::resize_file(file_, kept);
  }
  out_.open(file_, std::ios::binary | std::ios::app);
  if (!out_) {
    throw UserError(Problem{.where = file_.string(), .what = "the event file cannot be opened for writing"});
  }
  if (kept == 0) {
    std::string event = event_now();
    put_bytes(event, 3, "brain.Event:2");  // Event.file_version
    append(event);
  }
}

void EventWriter::add(int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    std::string entry;
    put_bytes(entry, 1, tag);     // Summary.Value.tag
    put_tag(entry, 2, kFixed32);  // Summary.Value.simple_value
    put(entry, static_cast<float>(value));
    put_bytes(summary, 1, entry);  // Summary.value
  }
  std::string event = event_now();
  put_tag(event, 2, kVarint);  // Event.step
  put_varint(event, static_cast<uint64_t>(step));
  put_bytes(event, 5, summary);  // Event.summary
  append(event);
}

void EventWriter::append(std::string_view event) {
  std::string record;
  put(record, static_cast<uint64_t>(event.size()));
  put(record, masked_crc32c(record));
  record.append(event);
  put(record, masked_crc32c(event));
  out_.write(record.data(), static_cast<std::streamsize>(record.size()));
  out_.flush();
  if (!out_) throw RunError(Problem{.where = file_.string(), .what = "writing the event file failed"});
}

}  // namespace draftsmith::train
