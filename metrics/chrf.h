// Corpus chrF and chrF++ (Popović 2015, 2017) as sacreBLEU 2.6 computes them: character n-grams up to 6 without white
// space, optionally word n-grams up to 2, F-beta with beta 2, averaged over the orders that both sides have.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "metrics/resampling.h"
#include "metrics/text.h"

namespace draftsmith::metrics {

struct ChrfOptions {
  int64_t char_order = 6;  // 1..6
  int64_t word_order = 0;  // 0: chrF; 2: chrF++; 0..2
  int64_t beta = 2;        // weight of recall against precision
};

// Statistics of each line: for every order the numbers of n-grams in hypothesis and reference and of those in both,
// for the reference that scores best on that line. Throws std::logic_error on unequal numbers of lines.
LineStatistics chrf_statistics(const std::vector<std::string>& hypotheses, const References& references,
                               const ChrfOptions& options = {});

// Score of summed statistics, 0..100.
double chrf_from_sums(std::span<const double> sums, const ChrfOptions& options = {});

double corpus_chrf(const std::vector<std::string>& hypotheses, const References& references,
                   const ChrfOptions& options = {});

// "chrF2" or "chrF2++".
std::string chrf_name(const ChrfOptions& options);

// sacreBLEU's signature with our own version in it.
std::string chrf_signature(const References& references, const ChrfOptions& options, bool brief = false);

}  // namespace draftsmith::metrics
