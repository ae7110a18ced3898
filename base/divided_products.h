// Products of fp32 matrices that are cut in one piece a thread, in place of MKL's own threads.
//
// MKL's threads wait for each other several times within a product, by spinning, so that a thread without a processor
// stops all. The pieces here are independent; base/parallel_regions.h may have fewer threads run them.
#pragma once

namespace draftsmith {

// Cuts LibTorch's fp32 products in pieces as long as it lives, in the whole process: at::mm(), at::bmm() and all that
// uses them, forward and backward. Results depend on the number of threads, at::get_num_threads(), and on nothing
// else. Where LibTorch has no MKL, batches of products are left alone.
class DividedProducts {
 public:
  DividedProducts();
  ~DividedProducts();
  DividedProducts(const DividedProducts&) = delete;
  DividedProducts& operator=(const DividedProducts&) = delete;
};

// Returns whether LibTorch's library has BLAS' sgemm_, which this program may call, too.
bool has_sgemm();

}  // namespace draftsmith
