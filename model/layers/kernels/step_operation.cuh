// Operations of a step program as the host hands them to the kernel (step_program.cu): pointers to device memory, sizes
// and strides in elements. Plain C++ for both.
#pragma once

namespace kernel {

enum StepKind { kLinear, kAttend, kWrite, kRotate };

// y [rows,outputs] = f(layer(norm(x))) + residual, or f(layer) * up (linear_rows.cuh).
struct LinearStep {
  const void* x;         // [rows,inputs]
  const void* norm;      // [inputs] or null
  const void* weight;    // [outputs,inputs]
  const void* bias;      // [outputs] or null
  const void* up;        // [outputs,inputs] or null
  const void* up_bias;   // [outputs] or null
  const void* residual;  // [rows,outputs] or null
  void* y;
  float epsilon;
  int rows;
  int inputs;
  int outputs;
  int then;
};

// Attention over caches; letters as in attention.cuh.
struct AttendStep {
  const void* query;  // [B,L,H*width], rows and tokens strided
  void* context;      // [B,L,H*width]
  const void* keys;
  const void* values;
  const long long* row;
  const long long* prefix;
  const long long* own;
  const long long* position;
  const void* bias;
  double scale;
  long long row_stride;
  long long token_stride;
  int rows;
  int tokens;
  int heads;
  int columns;
  int shared;
  int slots;
  int width;
};

// Writes of keys and values to caches (step.cuh).
struct WriteStep {
  void* key_cache;
  void* value_cache;
  const void* key;
  const void* value;
  const long long* row;
  const long long* slot;
  long long numbers;  // of the keys
  long long key_row;
  long long key_token;
  long long value_row;
  long long value_token;
  int tokens;
  int shared;
  int slots;
  int width;
};

// Rotation in place (step.cuh).
struct RotateStep {
  void* x;
  const void* cosine;
  const void* sine;
  const long long* position;
  long long pairs;
  long long row_stride;
  long long token_stride;
  int tokens;
  int heads;
  int width;
  int half;
};

struct StepOperation {
  int kind;         // StepKind
  int next_linear;  // number of the linear operation whose weights come next; -1: none
  union {
    LinearStep linear;
    AttendStep attend;
    WriteStep write;
    RotateStep rotate;
  };
};

// Operations of one launch. Kernels take at most 32,764 bytes of parameters.
constexpr int kMostStepOperations = 192;

struct StepOperations {
  int count;
  StepOperation operations[kMostStepOperations];
};
static_assert(sizeof(StepOperations) <= 32000);

}  // namespace kernel
