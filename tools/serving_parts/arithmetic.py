"""What tools/serving computes: acceptance by position with intervals, and whether other ids are mere rounding."""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
import textwrap

# Engines add in another order. Where our two largest logits are closer than this, either id is right.
MARGIN = 1e-3
Z = 1.96  # of a 95 % interval
# Of a comparison of two shares: five positions at once give a false alarm in 3 of 10,000 tables.
Z_DIFFERENT = 4.0

METRIC = re.compile(r"^vllm:spec_decode_num_(\w+?)(?:_total)?(?:\{(.*)\})? ([-+.\deE]+)$")
PROCESS = re.compile(r"^\(\w+ pid=\d+\) (?:ERROR [\d-]+ [\d:]+ \[[\w.]+:\d+\] ?)?")
ERROR = re.compile(r"[\w.]*(?:Error|Exception)(?::|$)")
FRAME = re.compile(r'File "(?:.*/site-packages/)?([^"]+)", line (\d+)')
POSITION = re.compile(r'position="(\d+)"')


@dataclasses.dataclass
class Acceptance:
    """Drafts of a run, and how many of them kept at least the first, the first two, ... of their tokens."""

    drafts: int
    kept: list[int]

    def shares(self) -> list[float]:
        return [count / self.drafts if self.drafts else math.nan for count in self.kept]


def acceptance_of_histogram(histogram: list[int], window: int) -> Acceptance:
    """Returns the acceptance of draftsmith's accepted_histogram: drafts by the number of tokens they kept."""
    return Acceptance(sum(histogram), [sum(histogram[position + 1:]) for position in range(window)])


def acceptance_of_metrics(text: str, window: int) -> Acceptance:
    """Returns the acceptance in a page of vLLM's metrics (Prometheus' text format), summed over engines."""
    drafts, kept = 0, [0] * window
    for line in text.splitlines():
        match = METRIC.match(line)
        if not match:
            continue
        name, labels, value = match.group(1), match.group(2) or "", int(float(match.group(3)))
        if name == "drafts":
            drafts += value
        elif name == "accepted_tokens_per_pos":
            position = POSITION.search(labels)
            if position and int(position.group(1)) < window:
                kept[int(position.group(1))] += value
    if not drafts:
        raise ValueError("vLLM's metrics hold no drafts\n  expected: vllm:spec_decode_num_drafts_total above 0\n"
                         "  hint:     was the server started with --speculative-config?")
    return Acceptance(drafts, kept)


def acceptance_of_drafts(drafts: list[list], outputs: list[list[int]], window: int) -> Acceptance:
    """Returns the acceptance of drafts, (new tokens before it, ids) for each, in the outputs that they led to. The part
    of a draft behind its output's end counts as not kept."""
    histogram = [0] * (window + 1)
    for of_output, output in zip(drafts, outputs):
        for begin, draft in of_output:
            kept = 0
            for token, wanted in zip(draft, output[begin:]):
                if token != wanted:
                    break
                kept += 1
            histogram[kept] += 1
    return acceptance_of_histogram(histogram, window)


def difference(later: Acceptance, earlier: Acceptance) -> Acceptance:
    """Returns what counters grew by."""
    return Acceptance(later.drafts - earlier.drafts, [a - b for a, b in zip(later.kept, earlier.kept)])


def interval(successes: int, trials: int, z: float = Z) -> tuple[float, float]:
    """Returns Wilson's interval of a share; (0, 1) of nothing."""
    if trials == 0:
        return 0.0, 1.0
    share = successes / trials
    shrink = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, centre - half), min(1.0, centre + half)


def within_sampling_error(one: Acceptance, other: Acceptance) -> bool:
    """Returns whether the shares of all positions may be of one distribution (two shares pooled, Z_DIFFERENT)."""
    for a, b in zip(one.kept, other.kept):
        pooled = (a + b) / max(1, one.drafts + other.drafts)
        error = math.sqrt(pooled * (1 - pooled) * (1 / max(1, one.drafts) + 1 / max(1, other.drafts)))
        if abs(a / max(1, one.drafts) - b / max(1, other.drafts)) > Z_DIFFERENT * error + 1e-12:
            return False
    return True


def first_difference(ours: list[int], theirs: list[int], eos: int | None) -> int | None:
    """Returns the first position where the outputs differ; None if they are equal. An EOS at the end is optional."""
    ours, theirs = (ids[:-1] if ids and ids[-1] == eos else ids for ids in (ours, theirs))
    for position, (a, b) in enumerate(zip(ours, theirs)):
        if a != b:
            return position
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))


def is_rounding(logits: list[float], ours: int, theirs: int, margin: float = MARGIN) -> bool:
    """Returns whether both ids are as good as the best: within the margin of the largest logit."""
    best = max(logits)
    return all(0 <= token < len(logits) and best - logits[token] < margin for token in (ours, theirs))


def printed_command(output: str, first_word: str) -> list[str]:
    """Returns the words of the command that `draftsmith export` printed."""
    for line in output.splitlines():
        start = line.find(first_word + " ")
        if start >= 0:
            return shlex.split(line[start:])
    raise ValueError(f"the export printed no command of {first_word}\n  found: {output.strip()}")


def refusal(log: str) -> str:
    """Returns the error that a server's log ends with, and the line of its source that raised it. Processes of vLLM
    write before each line who they are, and report an error of another process without its cause."""
    lines = [PROCESS.sub("", line).rstrip() for line in log.splitlines()]
    errors = [i for i, line in enumerate(lines) if ERROR.match(line) and "initialization failed" not in line]
    if not errors:
        return lines[-1][-300:] if lines else "nothing"
    frames = [i for i in range(errors[-1]) if FRAME.search(lines[i])]
    if not frames:
        return lines[errors[-1]][:300]
    file, number = FRAME.search(lines[frames[-1]]).groups()
    return f"{lines[errors[-1]][:300]}, by {file}, line {number}: `{lines[frames[-1] + 1].strip()}`"


def wrapped(text: str, width: int = 120) -> str:
    """Returns Markdown with its long lines cut at spaces; tables and code stay."""
    lines, code = [], False
    for line in text.splitlines():
        code ^= line.startswith("```")
        keep = code or line.startswith(("|", "```")) or len(line) <= width
        lines += [line] if keep else textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def table(head: list[str], rows: list[list[str]]) -> str:
    """Returns a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def acceptance_table(columns: dict[str, Acceptance]) -> str:
    """Returns a table of shares by position with 95 % intervals."""
    window = max(len(column.kept) for column in columns.values())
    rows = []
    for position in range(window):
        row = [str(position + 1)]
        for column in columns.values():
            low, high = interval(column.kept[position], column.drafts)
            row.append(f"{column.shares()[position]:.3f} ({low:.3f}–{high:.3f})")
        rows.append(row)
    return table(["kept at least", *(f"{name}, {column.drafts} drafts" for name, column in columns.items())], rows)
