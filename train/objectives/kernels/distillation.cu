// Loss of distillation over the vocabulary and its slope along the student's logits, for
// train/objectives/distillation_operator.h. One position a block: it reads its logits twice, and writes them once.
//
// Sums are fp32 (fp64 for fp64), in an order that the number of threads alone decides. Teachers' logits are read in
// the type that they have.
#include "base/kernels/block_sum.cuh"
#include "base/kernels/numbers.cuh"
#include "train/objectives/kernels/softmax_sums.cuh"

namespace kernel {

// Order of Divergence in train/objectives/divergence.h.
constexpr int kForwardKl = 0;
constexpr int kReverseKl = 1;
constexpr int kJsd = 2;

// train/objectives/distillation_sum.h.
constexpr float kLogOfNothing = -80;
constexpr float kLeastLog = -1e4;

// Settings of the loss lambda CE + (1 - lambda) T^2 D.
template <class T>
struct LossTerms {
  int divergence;
  T beta;
  T lambda;
  T temperature;
  T smoothing;
  T per_temperature = 1 / temperature;
  T log_beta = log(beta);
  T log_rest = log1p(-beta);

  __device__ T of_divergence() const { return (1 - lambda) * temperature * temperature; }
  __device__ T of_slope() const { return (1 - lambda) * temperature; }  // d value / d (z / T)
};

// One token's part of a divergence, and q times its slope along q.
template <class T>
struct DivergenceTerm {
  T value;
  T slope;
};

template <class T>
__device__ DivergenceTerm<T> divergence_term(const LossTerms<T>& terms, T log_p, T log_q) {
  const T p = exp(log_p);
  if (terms.divergence == kForwardKl) return {p * (log_p - log_q), -p};
  const T q = exp(log_q);
  if (terms.divergence == kReverseKl) return {q * (log_q - log_p), q * (log_q - log_p)};
  if (terms.divergence == kJsd) {
    const T a = log_p + terms.log_beta;
    const T b = log_q + terms.log_rest;
    const T log_m = a > b ? a + log1p(exp(b - a)) : b + log1p(exp(a - b));
    const T of_q = (1 - terms.beta) * q * (log_q - log_m);
    return {terms.beta * p * (log_p - log_m) + of_q, of_q};
  }
  const T difference = q - p;
  const T half = difference > 0 ? q / 2 : difference < 0 ? -q / 2 : T(0);
  return {difference > 0 ? difference / 2 : -difference / 2, half};
}

// A position: its logits [V], which become the slope, its label, and the loss.
template <class T>
struct Position {
  T* logits;
  int label;
  T* loss;
  int vocabulary;
  int shared;  // first logits, those of the ids that the teacher has
};

// The student's cross entropy and distribution at a position.
template <class T>
struct Student {
  Softmax<T> all;     // over V at temperature 1; unused if lambda is 0
  Softmax<T> shared;  // over the shared ids at the temperature
  T plain;            // sum of all logits
  T own;              // logit of the label

  __device__ T log_q(T logit, const LossTerms<T>& terms) const {
    return shared.log_probability(logit * terms.per_temperature);
  }
};

template <class T>
__device__ Student<T> read_student(const Position<T>& position, const LossTerms<T>& terms) {
  SoftmaxSum<T> all, shared;
  T plain = 0;
  const T own = position.logits[position.label];
  for (int i = static_cast<int>(threadIdx.x); i < position.vocabulary; i += static_cast<int>(blockDim.x)) {
    const T logit = position.logits[i];
    if (i < position.shared) shared.add(logit * terms.per_temperature);
    if (terms.lambda > 0) all.add(logit);
    plain += logit;
  }
  Student<T> student{{0, 1, 0}, softmax_of_block(shared), 0, own};
  if (terms.lambda > 0) {
    student.all = softmax_of_block(all);
    student.plain = block_sum(plain);
  }
  return student;
}

// Writes the loss of a position.
template <class T>
__device__ void write_loss(const Position<T>& position, const Student<T>& student, const LossTerms<T>& terms,
                           T divergence) {
  if (threadIdx.x != 0) return;
  T loss = terms.of_divergence() * divergence;
  if (terms.lambda > 0) {
    const T kept = 1 - terms.smoothing;
    const T mean = terms.smoothing > 0 ? terms.smoothing / static_cast<T>(position.vocabulary) * student.plain : T(0);
    loss += terms.lambda * (student.all.largest + student.all.log_total - kept * student.own - mean);
  }
  *position.loss = loss;
}

// Returns the slope of the cross entropy's part along a logit.
template <class T>
__device__ T cross_entropy_slope(const Position<T>& position, const Student<T>& student, const LossTerms<T>& terms,
                                 int token, T logit) {
  if (!(terms.lambda > 0)) return 0;
  const T even = terms.smoothing / static_cast<T>(position.vocabulary);
  const T probability = exp(logit - student.all.largest) / student.all.total;
  return terms.lambda * (probability - even - (token == position.label ? 1 - terms.smoothing : T(0)));
}

// A teacher's logits at a position, by rows of the student's head.
template <class T, class U>
struct TeacherLogits {
  const U* logits;   // [n]
  const Int64* ids;  // [shared]; nullptr: the rows' numbers
  T per_temperature;

  __device__ T operator()(int row) const {
    return static_cast<T>(widen(logits[ids == nullptr ? row : ids[row]])) * per_temperature;
  }
};

// Compares whole distributions.
template <class T, class U>
__device__ void distill(const Position<T>& position, const TeacherLogits<T, U>& teacher, const LossTerms<T>& terms,
                        int write_slope) {
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  SoftmaxSum<T> taught;
  for (int i = thread; i < position.shared; i += threads) taught.add(teacher(i));
  const Softmax<T> p = softmax_of_block(taught);
  const Student<T> student = read_student(position, terms);
  DivergenceTerm<T> sum{0, 0};
  for (int i = thread; i < position.shared; i += threads) {
    const auto term = divergence_term(terms, p.log_probability(teacher(i)), student.log_q(position.logits[i], terms));
    sum.value += term.value;
    sum.slope += term.slope;
  }
  write_loss(position, student, terms, block_sum(sum.value));
  const T total = block_sum(sum.slope);
  if (write_slope == 0) return;
  for (int i = thread; i < position.vocabulary; i += threads) {
    const T logit = position.logits[i];
    T slope = cross_entropy_slope(position, student, terms, i, logit);
    if (i < position.shared) {
      const T log_q = student.log_q(logit, terms);
      const auto term = divergence_term(terms, p.log_probability(teacher(i)), log_q);
      slope += terms.of_slope() * (term.slope - exp(log_q) * total);
    }
    position.logits[i] = slope;
  }
}

// A teacher's most likely ids at a position, and what is left for all others.
template <class T>
struct TeacherIds {
  const Int64* ids;    // [K], rows of the student's head; -1: an unused place
  const T* log_probs;  // [K]
  T tail;              // log of the rest's probability
  int count;           // at most the threads of the block
};

// Compares the probabilities of K ids and of one bucket with all others. Each thread has one of the ids; thread 0 has
// the bucket, too. Logits of the K ids are -infinity while the bucket's probability is summed.
template <class T>
__device__ void distill_ids(const Position<T>& position, const TeacherIds<T>& teacher, const LossTerms<T>& terms,
                            int write_slope) {
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const bool present = thread < teacher.count;
  const int id = present ? static_cast<int>(teacher.ids[thread]) : -1;
  T stored = kLogOfNothing;
  if (id >= 0) stored = teacher.log_probs[thread] < kLeastLog ? kLeastLog : teacher.log_probs[thread];
  const T stored_tail = teacher.tail < kLogOfNothing ? kLogOfNothing : teacher.tail;
  SoftmaxSum<T> taught;
  if (present) taught.add(stored);
  if (thread == 0) taught.add(stored_tail);
  const Softmax<T> p = softmax_of_block(taught);
  const Student<T> student = read_student(position, terms);
  const T logit = id >= 0 ? position.logits[id] : T(0);
  __syncthreads();  // the logits have been read
  if (id >= 0) position.logits[id] = -infinite<T>();
  __syncthreads();
  T left = 0;
  for (int i = thread; i < position.shared; i += threads) left += exp(student.log_q(position.logits[i], terms));
  const T log_left = log(block_sum(left));
  const T log_q_tail = log_left < kLogOfNothing ? kLogOfNothing : log_left;
  const T log_q = id >= 0 ? student.log_q(logit, terms) : kLogOfNothing;
  const auto tail = divergence_term(terms, p.log_probability(stored_tail), log_q_tail);
  DivergenceTerm<T> own{0, 0};
  if (present) own = divergence_term(terms, p.log_probability(stored), log_q);
  const T some = block_sum(id >= 0 ? T(1) : T(0)) > 0 ? T(1) : T(0);  // without an id there is nothing to compare
  write_loss(position, student, terms, some * block_sum(own.value + (thread == 0 ? tail.value : T(0))));
  const T total = block_sum(own.slope + (thread == 0 ? tail.slope : T(0)));
  if (write_slope == 0) return;
  const T factor = some * terms.of_slope();
  const T of_tail = tail.slope / exp(log_q_tail) - total;
  for (int i = thread; i < position.vocabulary; i += threads) {
    const T number = position.logits[i];
    T slope = cross_entropy_slope(position, student, terms, i, number);
    if (i < position.shared) slope += factor * (exp(student.log_q(number, terms)) * of_tail);
    position.logits[i] = slope;
  }
  __syncthreads();
  if (id < 0) return;
  position.logits[id] =
      cross_entropy_slope(position, student, terms, id, logit) + factor * (own.slope - exp(log_q) * total);
}

// Returns the position of this block in logits [C,V].
template <class T>
__device__ Position<T> position_of_block(T* logits, const Int64* labels, T* losses, int vocabulary, int shared) {
  const Int64 position = blockIdx.x;
  return {logits + position * vocabulary, static_cast<int>(labels[position]), losses + position, vocabulary, shared};
}

template <class T, class U>
__device__ void distill_row(T* logits, const Int64* labels, const U* teacher, const Int64* ids, T* losses,
                            int vocabulary, int shared, int teacher_vocabulary, const LossTerms<T>& terms,
                            int write_slope) {
  const TeacherLogits<T, U> own{teacher + static_cast<Int64>(blockIdx.x) * teacher_vocabulary, ids,
                                terms.per_temperature};
  distill(position_of_block(logits, labels, losses, vocabulary, shared), own, terms, write_slope);
}

template <class T>
__device__ void distill_ids_row(T* logits, const Int64* labels, const Int64* ids, const T* log_probs, const T* tail,
                                T* losses, int vocabulary, int shared, int count, const LossTerms<T>& terms,
                                int write_slope) {
  const Int64 first = static_cast<Int64>(blockIdx.x) * count;
  const TeacherIds<T> own{ids + first, log_probs + first, tail[blockIdx.x], count};
  distill_ids(position_of_block(logits, labels, losses, vocabulary, shared), own, terms, write_slope);
}

}  // namespace kernel

#define DISTILL_KERNEL(suffix, U)                                                                                     \
  extern "C" __global__ void __launch_bounds__(512, 1)                                                                \
      distill_##suffix(float* logits, const long long* labels, const U* teacher, const long long* ids, float* losses, \
                       int vocabulary, int shared, int teacher_vocabulary, int divergence, float beta, float lambda,  \
                       float temperature, float smoothing, int write_slope) {                                         \
    kernel::distill_row<float, U>(logits, labels, teacher, ids, losses, vocabulary, shared, teacher_vocabulary,       \
                                  {divergence, beta, lambda, temperature, smoothing}, write_slope);                   \
  }

DISTILL_KERNEL(fp32, float)
DISTILL_KERNEL(bf16, kernel::BFloat16)
DISTILL_KERNEL(fp16, kernel::Half)

extern "C" __global__ void __launch_bounds__(512, 1)
    distill_ids_fp32(float* logits, const long long* labels, const long long* ids, const float* log_probs,
                     const float* tail, float* losses, int vocabulary, int shared, int count, int divergence,
                     float beta, float lambda, float temperature, float smoothing, int write_slope) {
  kernel::distill_ids_row<float>(logits, labels, ids, log_probs, tail, losses, vocabulary, shared, count,
                                 {divergence, beta, lambda, temperature, smoothing}, write_slope);
}
