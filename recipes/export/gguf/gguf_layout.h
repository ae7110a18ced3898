// Numbers of the GGUF format that its writer and its reader share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace draftsmith::recipes {

constexpr std::string_view kGgufMagic = "GGUF";
constexpr uint32_t kGgufVersion = 3;
constexpr uint64_t kGgufAlignment = 32;  // of the tensors; general.alignment is absent

// Types of values.
enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt32 = 5,
  kUint32 = 4,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9
};

template <class T>
constexpr GgufValueType gguf_type_of() {
  if constexpr (std::is_same_v<T, bool>) return GgufValueType::kBool;
  if constexpr (std::is_same_v<T, uint8_t>) return GgufValueType::kUint8;
  if constexpr (std::is_same_v<T, int32_t>) return GgufValueType::kInt32;
  if constexpr (std::is_same_v<T, uint32_t>) return GgufValueType::kUint32;
  if constexpr (std::is_same_v<T, float>) return GgufValueType::kFloat32;
  if constexpr (std::is_same_v<T, std::string>) return GgufValueType::kString;
  return GgufValueType::kArray;
}

constexpr uint64_t aligned(uint64_t bytes) {
  return (bytes + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

}  // namespace draftsmith::recipes
