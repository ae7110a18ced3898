"""Tables of a run's results: for the terminal, and in Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

WIDTH = 100
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


def tables_of_step(step: Record) -> list[Table]:
    """The tables of a step's record, one a measure, in the order in which measures first came. Copies have none."""
    data = step.get("data", {})
    records = [record for record in data.get("records", []) if record.get("measure") != "copy"]
    found = [table(SUITES, data["suites"])] if data.get("suites") else []
    for measure in dict.fromkeys(record.get("measure") for record in records):
        own = [record for record in records if record.get("measure") == measure]
        found.append(table(MEASURES.get(measure) or plain_form(str(measure), own), own))
    return found


def plain_form(measure: str, records: list[Record]) -> tuple[str, str, tuple[Column, ...]]:
    """A form for a measure that has none: all keys that records have, but for those that they share with others."""
    keys = [key for key in dict.fromkeys(key for record in records for key in record) if key not in COMMON]
    columns = tuple(Column(key.replace("_", " "), plain(key)) for key in keys)
    return f"Measure: {measure.replace('_', ' ')}", "As the program says it.", columns


def console(made: Table) -> str:
    """The table for a terminal, numbers to the right. The widest columns are cut until a line fits."""
    lines = (made.head, *made.rows)
    widths = [max(map(len, column)) for column in zip(*lines)]
    while sum(widths) + 2 * (len(widths) - 1) > WIDTH and max(widths) > 4:
        widths[widths.index(max(widths))] -= 1
    right = [all(cell == "–" or cell.replace(",", "").replace(".", "").lstrip("-").isdigit() for cell in column)
             for column in zip(*made.rows)] or [False] * len(widths)
    return "\n".join([made.title] + ["  ".join(
        (cell if len(cell) <= width else cell[:width - 1] + "…").ljust(0 if flush else width).rjust(width)
        for cell, width, flush in zip(line, widths, right)).rstrip() for line in lines])


def markdown(made: Table) -> str:
    lines = [f"### {made.title}", "", made.says, "", "| " + " | ".join(made.head) + " |", "|" + "---|" * len(made.head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in made.rows]
    return "\n".join(lines)
