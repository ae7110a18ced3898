// Operators of rounds on the device, for infer/loop/device_rows.h: a thread a row, or a random number.
#include "infer/loop/kernels/rounds.cuh"
#include "infer/sampling/kernels/tokens.cuh"

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
                     kernel::kNoToken, window, columns);
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
