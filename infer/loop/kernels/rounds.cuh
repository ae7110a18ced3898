// Rounds of one row, for infer/loop/device_rows.h: the same functions in kernels and on the host.
#pragma once

#ifndef ROUND_FUNCTION  // the host defines it
#define ROUND_FUNCTION __device__
#endif

namespace kernel {

template <class Int>
ROUND_FUNCTION bool ends_text(Int token, const Int* eos, int count) {
  for (int i = 0; i < count; ++i) {
    if (token == eos[i]) return true;
  }
  return false;
}

// Writes the plan of row b: see plan_round().
template <class Int>
ROUND_FUNCTION void plan_row(Int b, const Int* text, const Int* length, const Int* drafted, const Int* end,
                             const Int* active, Int* plan, Int batch, Int columns, int window) {
  const Int present = length[b];
  const Int unseen = present - drafted[b];
  const Int room = end[b] - present - 1;
  const Int most = room < window ? room : window;
  const Int count = active[b] == 0 || most < 0 ? 0 : most;
  const Int* last = text + b * columns + present - 1;
  plan[b] = *last;
  plan[batch + b] = present - 1;
  plan[2 * batch + b] = active[b] == 0 ? 0 : count + 1;
  plan[3 * batch + b] = count;
  plan[4 * batch + 2 * b] = unseen == 2 ? last[-1] : *last;
  plan[4 * batch + 2 * b + 1] = *last;
  Int* step = plan + 6 * batch + b;
  for (int j = 0; j < window; ++j) {
    step[0] = j == 0 ? drafted[b] : present - 1 + (j < count ? j : 0);  // within the caches without a token, too
    step[window * batch] = j >= count ? 0 : j == 0 ? unseen : 1;
    step += batch;
  }
}

// Commits the round of row b: see commit_round().
template <class Int>
ROUND_FUNCTION void commit_row(Int b, Int* text, Int* length, Int* drafted, Int* active, const Int* end, const Int* eos,
                               int eos_count, const Int* tokens, Int count, Int accepted, Int next, Int no_token,
                               int window, Int columns) {
  if (active[b] == 0) return;
  const Int before = length[b];
  Int kept = accepted;
  for (Int j = 0; j < count; ++j) {
    const Int token = tokens[b * window + j];
    if (token == no_token) {
      active[b] = 0;
      return;
    }
    if (!ends_text(token, eos, eos_count)) continue;
    kept = kept < j + 1 ? kept : j + 1;
    break;
  }
  Int* to = text + b * columns + before;
  for (Int j = 0; j < kept; ++j) to[j] = tokens[b * window + j];
  const bool ended = kept > 0 && ends_text(to[kept - 1], eos, eos_count);
  const bool goes_on = !ended && next != no_token;
  if (goes_on) to[kept] = next;
  const Int after = before + kept + (goes_on ? 1 : 0);
  const Int processed = count > 0 ? before + count - 1 : drafted[b];
  length[b] = after;
  drafted[b] = processed < after - 1 ? processed : after - 1;
  active[b] = goes_on && after < end[b] && !ends_text(next, eos, eos_count) ? 1 : 0;
}

}  // namespace kernel
