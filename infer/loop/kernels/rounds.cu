// Operators of rounds on the device, for infer/loop/device_rows.h: a thread a row, or a random number.
#include "base/kernels/numbers.cuh"
#include "infer/sampling/kernels/tokens.cuh"

namespace kernel {

__device__ bool ends_text(Int64 token, const Int64* eos, int count) {
  for (int i = 0; i < count; ++i) {
    if (token == eos[i]) return true;
  }
  return false;
}

// Writes the plan of row b: see plan_round().
__device__ void plan_row(Int64 b, const Int64* text, const Int64* length, const Int64* drafted, const Int64* end,
                         const Int64* active, Int64* plan, Int64 batch, Int64 columns, int window) {
  const Int64 present = length[b];
  const Int64 unseen = present - drafted[b];
  const Int64 room = end[b] - present - 1;
  const Int64 most = room < window ? room : window;
  const Int64 count = active[b] == 0 || most < 0 ? 0 : most;
  const Int64* last = text + b * columns + present - 1;
  plan[b] = *last;
  plan[batch + b] = present - 1;
  plan[2 * batch + b] = active[b] == 0 ? 0 : count + 1;
  plan[3 * batch + b] = count;
  plan[4 * batch + 2 * b] = unseen == 2 ? last[-1] : *last;
  plan[4 * batch + 2 * b + 1] = *last;
  Int64* step = plan + 6 * batch + b;
  for (int j = 0; j < window; ++j) {
    step[0] = j == 0 ? drafted[b] : present - 1 + (j < count ? j : 0);  // within the caches without a token, too
    step[window * batch] = j >= count ? 0 : j == 0 ? unseen : 1;
    step += batch;
  }
}

// Commits the round of row b: see commit_round().
__device__ void commit_row(Int64 b, Int64* text, Int64* length, Int64* drafted, Int64* active, const Int64* end,
                           const Int64* eos, int eos_count, const Int64* tokens, Int64 count, Int64 accepted,
                           Int64 next, int window, Int64 columns) {
  if (active[b] == 0) return;
  const Int64 before = length[b];
  Int64 kept = accepted;
  for (Int64 j = 0; j < count; ++j) {
    const Int64 token = tokens[b * window + j];
    if (token == kNoToken) {
      active[b] = 0;
      return;
    }
    if (!ends_text(token, eos, eos_count)) continue;
    kept = kept < j + 1 ? kept : j + 1;
    break;
  }
  Int64* to = text + b * columns + before;
  for (Int64 j = 0; j < kept; ++j) to[j] = tokens[b * window + j];
  const bool ended = kept > 0 && ends_text(to[kept - 1], eos, eos_count);
  const bool goes_on = !ended && next != kNoToken;
  if (goes_on) to[kept] = next;
  const Int64 after = before + kept + (goes_on ? 1 : 0);
  const Int64 processed = count > 0 ? before + count - 1 : drafted[b];
  length[b] = after;
  drafted[b] = processed < after - 1 ? processed : after - 1;
  active[b] = goes_on && after < end[b] && !ends_text(next, eos, eos_count) ? 1 : 0;
}

}  // namespace kernel

extern "C" __global__ void __launch_bounds__(64)
    plan_round(const long long* text, const long long* length, const long long* drafted, const long long* end,
               const long long* active, long long* plan, long long batch, long long columns, int window) {
  const long long b = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (b < batch) kernel::plan_row(b, text, length, drafted, end, active, plan, batch, columns, window);
}

extern "C" __global__ void __launch_bounds__(64)
    commit_round(long long* text, long long* length, long long* drafted, long long* active, const long long* end,
                 const long long* eos, int eos_count, const long long* tokens, const long long* counts,
                 const long long* accepted, const long long* next, long long batch, int window, long long columns) {
  const long long b = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (b >= batch) return;
  kernel::commit_row(b, text, length, drafted, active, end, eos, eos_count, tokens, counts[b], accepted[b], next[b],
                     window, columns);
}

extern "C" __global__ void __launch_bounds__(256)
    row_uniforms(const double* table, const long long* length, const long long* prefix, double* out, long long batch,
                 long long numbers, int use, long long first, long long count) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= batch * count) return;
  const long long b = i / count;
  const long long wanted = length[b] - prefix[b] + first + i % count;
  const long long n = wanted < numbers ? wanted : numbers - 1;  // rows that have ended read what is there
  out[i] = table[(b * numbers + n) * 3 + use];
}
