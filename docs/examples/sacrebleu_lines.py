#!/usr/bin/env python3
"""sacreBLEU's TER, or its BLEU by any tokenizer, for Draftsmith's metric `command`.

  sacrebleu_lines.py ter|flores200|ja-mecab|...

Reads segments as input = "jsonl" gives them, and writes a number for each. Their mean is sacreBLEU's score of the whole
corpus. How a number differs from the mean says what the corpus would lose without its line (the jackknife), so that
Draftsmith's intervals and paired tests hold for the corpus' score. Needs: pip install 'sacrebleu[ja,ko]' sentencepiece
"""

import json
import sys

from sacrebleu.metrics import BLEU, TER


def ter(edits, words):
    return 100 * edits / words if words > 0 else 100 * (edits > 0)


def bleu(*counts):
    orders = len(counts) // 2 - 1
    return BLEU.compute_bleu(counts[2:2 + orders], counts[2 + orders:], *counts[:2], smooth_method="exp").score


def main(name):
    score_of, metric = (ter, TER()) if name == "ter" else (bleu, BLEU(tokenize=name, effective_order=True))
    counts = []
    for segment in map(json.loads, sys.stdin.buffer):
        line = metric.sentence_score(segment["hypothesis"], segment["references"])
        counts.append([line.num_edits, line.ref_length] if name == "ter" else
                      [line.sys_len, line.ref_len, *line.counts, *line.totals])
    sums = [sum(column) for column in zip(*counts)]
    without = [score_of(*(total - own for total, own in zip(sums, line))) for line in counts]
    whole, mean = score_of(*sums), sum(without) / len(without)
    for score in without:
        print(whole + (len(without) - 1) * (mean - score))


if __name__ == "__main__":
    main(sys.argv[1])
