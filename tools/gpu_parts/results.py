"""Results of a run: results.json and logs.tar.gz, complete after each step; their tables; and docs/results/gpu.md."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import statistics
import tarfile
import textwrap
from collections.abc import Callable
from typing import Any

from gpu_parts.places import Problem

FORMAT = 1
NAME = "results.json"
LOGS = "logs.tar.gz"
LOG_BYTES = 1 << 20


def write(path: pathlib.Path, results: dict[str, Any]) -> None:
    """Replaces the file in one step: readers see the old content or the new one."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def write_logs(path: pathlib.Path, folder: pathlib.Path) -> None:
    """Replaces the archive of all output of programs, of which it has the last LOG_BYTES each."""
    partial = path.with_name(path.name + ".partial")
    with tarfile.open(partial, "w:gz") as tar:
        for file in sorted(folder.iterdir()):
            info = tar.gettarinfo(file, arcname=f"logs/{file.name}")
            with file.open("rb") as content:
                content.seek(max(0, info.size - LOG_BYTES))
                info.size = min(info.size, LOG_BYTES)
                tar.addfile(info, content)
    os.replace(partial, path)


def refuse_earlier(path: pathlib.Path) -> None:
    """Raises Problem if results are there: the numbers of one file are of one run. Those of a dry run may go."""
    if path.exists() and not read(path).get("dry", False):
        raise Problem("there are results of an earlier run", "a folder without them", str(path), "name another --out")


def read(path: pathlib.Path) -> dict[str, Any]:
    try:
        results = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Problem("the results cannot be read", str(path), str(error), "tools/gpu run writes them") from None
    if not isinstance(results, dict) or results.get("format") != FORMAT or not isinstance(results.get("steps"), list):
        raise Problem("the results are of another form", f"format {FORMAT} with steps", str(path),
                      "make them again with this version's tools/gpu run")
    return results


def marks(step: dict[str, Any]) -> bool:
    """Whether a step's checks failed or were not done, so that the numbers of the run may be wrong."""
    return step.get("gate") in ("mark", "stop") and step["status"] in ("failed", "out of time")


def not_run(results: dict[str, Any]) -> list[str]:
    """Steps of the plan that have no record: the run was interrupted."""
    done = {step["name"] for step in results["steps"]}
    return [name for name in results.get("plan", []) if name not in done]


# ---- tables ----

COMMON = ("measure", "device", "dtype", "own_kernels", "recorded", "warnings")  # which a page needs to say once
Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Table:
    title: str
    says: str  # one sentence: what the numbers are
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclasses.dataclass(frozen=True)
class Column:
    head: str
    text: Callable[[Record], str]


def number(key: str, digits: int = 2, scale: float = 1.0) -> Callable[[Record], str]:
    """The number of a record, "–" where it was not measured."""
    def text(record: Record) -> str:
        value = record.get(key)
        return "–" if value is None else f"{value * scale:,.{digits}f}"
    return text


def power(key: str) -> Callable[[Record], str]:
    """A number of any size, "–" where it was not measured."""
    return lambda record: "–" if record.get(key) is None else f"{record[key]:.1e}"


def word(key: str) -> Callable[[Record], str]:
    return lambda record: str(record.get(key, "–"))


def plain(key: str) -> Callable[[Record], str]:
    """A number with four digits, anything else as it is."""
    return lambda record: f"{record[key]:.4g}" if isinstance(record.get(key), float) else str(record.get(key, "–"))


def passed(record: Record) -> str:
    return {True: "yes", False: "no"}.get(record.get("passed"), "no gate")


def relative(tokens: int) -> Callable[[Record], str]:
    """A step of so many tokens over one of a token, from a verification curve."""
    def text(record: Record) -> str:
        curve = dict(zip(record.get("tokens", []), record.get("relative", [])))
        return f"{curve[tokens]:.2f}" if tokens in curve else "–"
    return text


def way_of(record: Record) -> str:
    """What a run had on or off; "default" if nothing."""
    marks = ["kernels off" if record.get("kernels") == "off" else "", record.get("steps", ""),
             record.get("launch", "")]
    return ", ".join(mark for mark in marks if mark) or "default"


SHAPE, TYPE, BATCH = Column("shape", word("shape")), Column("type", word("dtype")), Column("batch", word("batch"))
WAY = Column("way", way_of)
PAIR = Column("target + drafter", lambda record: f"{record.get('target')} + {record.get('drafter')}")

# A table for each measure: title, sentence, columns.
MEASURES: dict[str, tuple[str, str, tuple[Column, ...]]] = {
    "greedy": ("Greedy decoding", "Roofline: the time to read the weights once at the bandwidth of a copy, over the "
               "step's.", (
                   SHAPE, TYPE, BATCH, WAY, Column("ms a step", number("ms_per_step", 3)),
                   Column("tokens/s", number("tokens_per_second", 0)),
                   Column("with encoder", number("with_encoder", 0)), Column("weights MB", number("weight_mb", 0)),
                   Column("roofline %", number("roofline_share", 1, 100)), Column("nodes", number("nodes", 0)))),
    "verification": ("Verification curves", "Time of a step of L tokens over that of one.", (
        SHAPE, TYPE, BATCH, WAY, Column("ms of one", number("ms_of_one", 3)),
        *(Column(f"L={count}", relative(count)) for count in (2, 4, 5, 8, 16)))),
    "drafting": ("Cost of drafting", "c: a drafter's step over the target's, measured and by bytes of weights.", (
        PAIR, TYPE, BATCH, WAY, Column("target ms", number("target_ms", 3)),
        Column("drafter ms", number("draft_ms", 3)), Column("c", number("cost_ratio")),
        Column("c by bytes", number("cost_ratio_by_bytes")))),
    "speculation": ("Speculation at known acceptance", "Tokens are kept by coins of probability alpha; predicted from "
                    "the run's own step times.", (
                        PAIR, TYPE, BATCH, WAY, Column("G", word("window")), Column("alpha", number("alpha")),
                        Column("found", number("alpha_found")), Column("tok/run", number("tokens_per_run")),
                        Column("speedup", number("speedup")), Column("predicted", number("predicted")),
                        Column("ratio", number("measured_over_predicted")))),
    "training": ("Training", "One micro-batch a step; MFU of the data sheet's dense bf16 peak.", (
        SHAPE, Column("precision", word("precision")), Column("dropout", word("dropout")),
        Column("rows", word("rows")), Column("ms a step", number("ms_per_step", 1)),
        Column("target tok/s", number("tokens_per_second", 0)), Column("TFLOP/s", number("tflops", 1)),
        Column("MFU %", number("mfu", 1, 100)), Column("peak MB", number("peak_memory_mb", 0)))),
    "peer decoding": ("Decoding with Transformers", "Encoder included: compare with the column \"with encoder\".", (
        Column("program", word("program")), SHAPE, TYPE, BATCH, Column("ms a step", number("ms_per_step", 3)),
        Column("tokens/s", number("tokens_per_second", 0)))),
    "peer training": ("Training with Transformers", "A plain loop: AdamW, clipping, the same sizes.", (
        Column("program", word("program")), SHAPE, Column("precision", word("precision")),
        Column("dropout", word("dropout")), Column("rows", word("rows")), Column("ms a step", number("ms_per_step", 1)),
        Column("target tok/s", number("tokens_per_second", 0)))),
    "check": ("Checks of own kernels and steps", "Differences are at most their bound, counts at least theirs.", (
        Column("check", word("check")), SHAPE, TYPE, Column("value", power("value")), Column("bound", power("bound")),
        Column("passed", passed))),
    "problem": ("Problems", "Settings that failed while the rest went on.", (
        SHAPE, TYPE, Column("problem", word("problem")))),
}
SUITES = ("Tests on the device", "A process each; one that is killed or crashes counts as a failure.", (
    Column("program", word("program")), Column("suite", word("suite")), Column("tests", word("tests")),
    Column("failed", word("failed")), Column("skipped", word("skipped")), Column("seconds", word("seconds"))))


def table(form: tuple[str, str, tuple[Column, ...]], records: list[Record]) -> Table:
    title, says, columns = form
    rows = tuple(tuple(column.text(record) for column in columns) for record in records)
    return Table(title, says, tuple(column.head for column in columns), rows)


def lists(record: Record) -> bool:
    """Whether a table lists a record: copies and checks that passed have a line alone."""
    return record.get("measure") != "copy" and not (record.get("measure") == "check" and record.get("passed") is True)


def tables_of_step(step: Record) -> list[Table]:
    """The tables of a step's record, one a measure, in the order in which measures first came."""
    data = step.get("data", {})
    records = [record for record in data.get("records", []) if lists(record)]
    wrong = [suite for suite in data.get("suites", []) if suite["failed"]]
    found = [table(SUITES, wrong)] if wrong else []
    for measure in dict.fromkeys(record.get("measure") for record in records):
        own = [record for record in records if record.get("measure") == measure]
        found.append(table(MEASURES.get(measure) or plain_form(str(measure), own), own))
    return found


def passed_lines(step: Record) -> list[str]:
    """Sentences about the checks and the tests of a step that passed."""
    data = step.get("data", {})
    lines = []
    if checks := [record for record in data.get("records", []) if record.get("passed") is True]:
        shapes = ", ".join(dict.fromkeys(record["shape"] for record in checks if "shape" in record))
        largest: dict[str, float] = {}
        for record in checks:
            if str(record.get("check")).startswith("logits_") and record.get("value") is not None:
                largest[record["dtype"]] = max(largest.get(record["dtype"], 0.0), record["value"])
        differences = ", ".join(f"{dtype} {value:.1e}" for dtype, value in largest.items())
        lines.append(f"{len(checks)} checks passed ({shapes})"
                     + (f"; logits differ by at most {differences} of the largest." if differences else "."))
    if suites := data.get("suites"):
        tests, failed, skipped = (sum(suite[key] for suite in suites) for key in ("tests", "failed", "skipped"))
        lines.append(f"Passed: {tests - failed - skipped}, skipped: {skipped}, failed: {failed}, "
                     f"in {len(suites)} suites.")
    return lines


def plain_form(measure: str, records: list[Record]) -> tuple[str, str, tuple[Column, ...]]:
    """A form for a measure that has none: all keys that records have, but for those that they share with others."""
    keys = [key for key in dict.fromkeys(key for record in records for key in record) if key not in COMMON]
    columns = tuple(Column(key.replace("_", " "), plain(key)) for key in keys)
    return f"Measure: {measure.replace('_', ' ')}", "As the program says it.", columns


def markdown(made: Table) -> str:
    lines = [f"### {made.title}", "", made.says, "", "| " + " | ".join(made.head) + " |", "|" + "---|" * len(made.head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in made.rows]
    return "\n".join(lines)

# ---- the page ----


def machine_of(results: dict[str, Any]) -> str:
    machine = results["machine"]
    parts = [machine.get("gpu", {}).get("name") or machine.get("cpu", "unknown machine")]
    if driver := machine.get("gpu", {}).get("driver_version"):
        parts.append(f"driver {driver}")
    parts += [f"{name} {version}" for name in ("torch", "transformers")
              if (version := machine.get("python", {}).get(name))]
    return ", ".join(parts)


def problems_of(results: dict[str, Any]) -> list[str]:
    """What a reader must know of steps that did not end well, and of slower ways that were taken."""
    lines = []
    for step in results["steps"]:
        if step["status"] != "ok":
            problem = " ".join(step.get("problem", "").split())
            lines.append(f"* {step['title']}, {step['status']} after {step['seconds']:.0f} s: {problem[:300]}")
    lines += [f"* {name}: not run, the run was interrupted" for name in not_run(results)]
    warnings = [str(warning) for step in results["steps"] for record in step.get("data", {}).get("records", [])
                for warning in record.get("warnings") or []]
    return lines + [f"* A program warned: {' '.join(warning.split())[:300]}" for warning in dict.fromkeys(warnings)]


def wrapped(lines: list[str], width: int = 120) -> list[str]:
    """Lines of a list, none too wide."""
    return [part for line in lines for part in
            textwrap.wrap(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)]


def head_of(results: dict[str, Any]) -> str:
    return "\n".join([f"`{results['command']}` ·",
                      f"commit {results['commit']} · {machine_of(results)} · {results['date'][:10]}"])


def page(runs: list[dict[str, Any]]) -> str:
    """The page's text, of the two calls of a loan or of one. The figures of a dry run mean nothing: it has no page."""
    if any(results.get("dry") for results in runs):
        raise Problem("a dry run has no page", "the results of tools/gpu run on a machine with a GPU",
                      "sizes of a dry run, on a CPU")
    steps = [step for results in runs for step in results["steps"]]
    sections = ["# Decoding and training on a GPU"]
    if failed := [step["title"] for step in steps if marks(step)]:
        sections.append("\n".join(wrapped([f"**Checks failed ({', '.join(failed)}): the times below may be those of "
                                           "wrong numbers.**"])))
    sections += ["Every measure that Draftsmith has for a GPU.", *map(head_of, runs)]
    if problems := [line for results in runs for line in problems_of(results)]:
        sections.append("\n".join(["Not everything ran as planned:", "", *wrapped(problems)]))
    for step in steps:
        said = "\n".join(wrapped(passed_lines(step)))
        made = tables_of_step(step)
        if said or made:
            sections += [f"## {step['title']}", *([said] if said else []), *map(markdown, made)]
    copies = [record["gb_per_second"] for step in steps for record in step.get("data", {}).get("records", [])
              if record.get("measure") == "copy"]
    sections.append("\n".join([
        "## How it is measured", "",
        *([f"* A copy on the device reads and writes {statistics.median(copies):,.0f} GB/s."] if copies else []),
        "* Weights are random and made on the device; speeds do not depend on them, outputs mean nothing.",
        "* Times are medians of 3 rounds or more, and end when the device is done or the tokens are on the host.",
        "* Our programs end with an error where a slower way than the named one would be taken.",
        "* `docs/results/README.md` explains the columns; `tools/gpu` and `bench/device_*.cpp` are the programs."]))
    return "\n\n".join(sections) + "\n"
