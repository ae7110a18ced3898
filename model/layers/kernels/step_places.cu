// Operator of steps whose lengths lie on the device, for model/layers/step_operators.h.
#include "base/kernels/numbers.cuh"

namespace kernel {

// Writes the packed places of token j of row b; a token a thread, the first of a row also what a row has once.
__device__ void step_places(const Int64* base, const Int64* new_tokens, const Int64* rows, Int64* packed, Int64 batch,
                            Int64 tokens, Int64 spare) {
  const Int64 all = batch * tokens;
  const Int64 index = static_cast<Int64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= all) return;
  const Int64 b = index / tokens;
  const Int64 j = index % tokens;
  const Int64 fresh = new_tokens[b];
  const Int64 position = base[b] + (j < fresh ? j : fresh);
  packed[index] = j < fresh ? position : spare;
  packed[all + index] = position;
  packed[2 * all + index] = position + 1;
  packed[3 * all + index] = rows[2 * batch + b];
  if (j > 0) return;
  packed[4 * all + b] = rows[b];
  packed[4 * all + batch + b] = rows[batch + b];
  packed[4 * all + 2 * batch + b] = fresh > 0 ? fresh - 1 : 0;
}

}  // namespace kernel

extern "C" __global__ void __launch_bounds__(256)
    step_places(const long long* base, const long long* new_tokens, const long long* rows, long long* packed,
                long long batch, long long tokens, long long spare) {
  kernel::step_places(base, new_tokens, rows, packed, batch, tokens, spare);
}
