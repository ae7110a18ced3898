// Counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// A value depends on its key and counter alone, so resuming, batch size and the number of threads change nothing.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace draftsmith {

using PhiloxBlock = std::array<uint32_t, 4>;

// Applies ten rounds of Philox4x32 to a counter block.
constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xd2511f53} * counter[0];
    const uint64_t product1 = uint64_t{0xcd9e8d57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += 0x9e3779b9;
    key[1] += 0xbb67ae85;
  }
  return counter;
}

// Returns the 64-bit number of a stream's name ("dropout/decoder/3"), equal on all machines (FNV-1a, then mixed).
constexpr uint64_t stream_of(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

// Independent sequence of random numbers for each (seed, stream). The Philox key is the seed; the counter block is
// (counter low, counter high, stream low, stream high).
class CounterRandom {
 public:
  constexpr CounterRandom(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}
  constexpr CounterRandom(uint64_t seed, std::string_view stream_name) : CounterRandom(seed, stream_of(stream_name)) {}

  // Returns four 32-bit words.
  constexpr PhiloxBlock block(uint64_t counter) const {
    return philox4x32({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                       static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                      {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
  }

  // Returns 64 random bits.
  constexpr uint64_t bits(uint64_t counter) const {
    const PhiloxBlock words = block(counter);
    return uint64_t{words[1]} << 32 | words[0];
  }

  // Returns a number in [0, 1), uniform, with 53 bits.
  constexpr double uniform(uint64_t counter) const { return static_cast<double>(bits(counter) >> 11) * 0x1p-53; }

  // Returns an integer in [0, bound), uniform up to a bias below bound / 2^64; bound > 0.
  constexpr uint64_t below(uint64_t counter, uint64_t bound) const {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(bits(counter)) * bound >> 64);
  }

  // Returns a standard normal number (Box-Muller, cosine branch).
  double normal(uint64_t counter) const {
    const PhiloxBlock words = block(counter);
    const uint64_t first = uint64_t{words[1]} << 32 | words[0];
    const uint64_t second = uint64_t{words[3]} << 32 | words[2];
    // The number is in (0, 1], so that its logarithm is finite.
    const double radius_uniform = (static_cast<double>(first >> 11) + 1) * 0x1p-53;
    const double angle = 2 * std::numbers::pi * (static_cast<double>(second >> 11) * 0x1p-53);
    return std::sqrt(-2 * std::log(radius_uniform)) * std::cos(angle);
  }

 private:
  uint64_t seed_;
  uint64_t stream_;
};

// Position in a CounterRandom, for loops that draw one number after another. The position is the whole state.
struct RandomSequence {
  CounterRandom random;
  uint64_t position = 0;

  double uniform() { return random.uniform(position++); }
  uint64_t below(uint64_t bound) { return random.below(position++, bound); }
  double normal() { return random.normal(position++); }
};

}  // namespace draftsmith
