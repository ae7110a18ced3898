#include "infer/costs/machine_rates.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/device.h"
#include "base/files.h"
#include "base/timing.h"
#include "base/util.h"
#include "model/cpu/weight_arena.h"

namespace draftsmith::infer {

namespace {

// Returns the sum of the words; reading memory is all its time.
DRAFTSMITH_VECTOR_CODE int64_t sum_of_words(const int64_t* words, int64_t count) {
  int64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += words[i];
  return sum;
}

class ReadRate final : public MachineRate {
 public:
  explicit ReadRate(int64_t bytes) {
    model::WeightArena arena;
    words_ = arena.take({bytes / static_cast<int64_t>(sizeof(int64_t))}, at::kLong);
    // A thread's first write decides where a page lies: the reading thread writes it.
    in_parts([](int64_t* words, int64_t count) { std::fill_n(words, count, 1); });
  }

  double measure() override {
    std::atomic<int64_t> sum{0};
    const Stopwatch watch;
    in_parts([&](const int64_t* words, int64_t count) { sum += sum_of_words(words, count); });
    const double seconds = watch.seconds();
    if (sum != words_.numel()) throw std::logic_error("the memory was not read");
    return static_cast<double>(words_.nbytes()) / seconds;
  }

  std::string description() const override {
    return fmt::format("reading {} in huge pages", human_bytes(words_.nbytes()));
  }

 private:
  // Calls work(words, count) in each thread, for its part.
  template <class PartWork>
  void in_parts(const PartWork& work) {
    auto* words = words_.mutable_data_ptr<int64_t>();
    at::parallel_for(0, words_.numel(), 1, [&](int64_t begin, int64_t end) { work(words + begin, end - begin); });
  }

  at::Tensor words_;  // int64 [n]
};

class CopyRate final : public MachineRate {
 public:
  CopyRate(at::Device device, int64_t bytes)
      : device_(device),
        from_(at::ones({bytes}, at::TensorOptions(device).dtype(at::kByte))),
        to_(at::zeros({bytes}, at::TensorOptions(device).dtype(at::kByte))) {}

  double measure() override {
    synchronize(device_);
    const Stopwatch watch;
    to_.copy_(from_);
    synchronize(device_);
    return 2 * static_cast<double>(from_.nbytes()) / watch.seconds();
  }

  std::string description() const override {
    return fmt::format("copying {}, bytes read and written", human_bytes(from_.nbytes()));
  }

 private:
  at::Device device_;
  at::Tensor from_;
  at::Tensor to_;
};

class ProductRate final : public MachineRate {
 public:
  ProductRate(at::Device device, at::ScalarType type, int64_t size)
      : device_(device),
        a_(at::randn({size, size}, at::TensorOptions(device).dtype(type))),
        b_(at::randn({size, size}, a_.options())),
        product_(at::empty_like(a_)) {}

  double measure() override {
    synchronize(device_);
    const Stopwatch watch;
    at::mm_out(product_, a_, b_);
    synchronize(device_);
    const double seconds = watch.seconds();
    const auto size = static_cast<double>(a_.size(0));
    return 2 * size * size * size / seconds;
  }

  std::string description() const override {
    return fmt::format("product of two matrices of {0} x {0} in {1}", a_.size(0), dtype_name(a_.scalar_type()));
  }

 private:
  at::Device device_;
  at::Tensor a_;
  at::Tensor b_;
  at::Tensor product_;
};

}  // namespace

std::unique_ptr<MachineRate> read_rate(int64_t bytes) {
  return std::make_unique<ReadRate>(bytes);
}

int64_t uncached_bytes() {
  constexpr int64_t kMiB = 1 << 20;
  const int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE);  // of one of perhaps several; 0: unknown
  const int64_t memory = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE);
  const int64_t wanted = std::max({256 * kMiB, 8 * cache, 64 * kMiB * at::get_num_threads()});
  return std::min(wanted, std::max(memory / 8, 64 * kMiB)) / kMiB * kMiB;
}

std::unique_ptr<MachineRate> copy_rate(at::Device device, int64_t bytes) {
  return std::make_unique<CopyRate>(device, bytes);
}

std::unique_ptr<MachineRate> product_rate(at::Device device, at::ScalarType type, int64_t size) {
  return std::make_unique<ProductRate>(device, type, size);
}

}  // namespace draftsmith::infer
