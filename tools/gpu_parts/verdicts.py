"""What a run's numbers decide, by rules that were written down before it."""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]
# Speed of decoding without own kernels over the default's, from which on linear_rows does not pay.
DROP_LINEAR_ROWS = {"llama-1b": 0.85, "t5-large": 0.7}
TENSOR_CORES = 1.3  # a step of 16 tokens over one of one token
PROGRAMMATIC = 0.7  # a node with programmatic launch over a plain one


def find(records: list[Record], measure: str, shape: str, **marks: str) -> Record | None:
    """The record of batch 1 in bf16 with these marks and no others."""
    for record in records:
        found = {key: record[key] for key in ("kernels", "steps", "launch", "run") if key in record}
        if (record.get("measure"), record.get("shape"), record.get("dtype"), record.get("batch")) == (
                measure, shape, "bf16", 1) and found == marks:
            return record
    return None


def speed_ratio(records: list[Record], shape: str, **marks: str) -> float | None:
    """Tokens a second of a run with these marks over the default's."""
    default = find(records, "greedy", shape, run="default")
    other = find(records, "greedy", shape, **marks)
    return other["tokens_per_second"] / default["tokens_per_second"] if default and other else None


def linear_rows(records: list[Record]) -> str:
    ratios = {shape: speed_ratio(records, shape, kernels="off") for shape in DROP_LINEAR_ROWS}
    if None in ratios.values():
        return "not measured"
    drop = all(ratios[shape] >= least for shape, least in DROP_LINEAR_ROWS.items())
    said = ", ".join(f"{shape} at {ratio:.2f} x (limit {DROP_LINEAR_ROWS[shape]:.2f})"
                     for shape, ratio in ratios.items())
    return f"without own kernels {said}: {'drop' if drop else 'keep'} `linear_rows`"


def tensor_cores(records: list[Record]) -> str:
    curves = {shape: find(records, "verification", shape, run="default")
              for shape in ("t5-small", "t5-base", "t5-large", "llama-1b")}
    values = {shape: dict(zip(curve["tokens"], curve["relative"])).get(16) for shape, curve in curves.items() if curve}
    values = {shape: value for shape, value in values.items() if value is not None}
    if not values:
        return "not measured"
    said = ", ".join(f"{shape} {value:.2f}" for shape, value in values.items())
    return (f"a step of 16 tokens over one of one: {said} (limit {TENSOR_CORES}): "
            + ("build" if max(values.values()) > TENSOR_CORES else "do not build") + " a kernel for tensor cores")


def programmatic_launch(records: list[Record]) -> str:
    nodes = {record.get("launch"): record["us_rotate"] for record in records if record.get("measure") == "nodes"}
    if nodes.keys() != {None, "programmatic"}:
        return "not measured"
    ratio = nodes["programmatic"] / nodes[None]
    gains = [f"{shape} at {gain:.2f} x the tokens a second" for shape in DROP_LINEAR_ROWS
             if (gain := speed_ratio(records, shape, launch="programmatic"))]
    return (f"{nodes['programmatic']:.2f} µs a node, {ratio:.2f} x of a plain one (limit {PROGRAMMATIC}): "
            + ("switch it on" if ratio <= PROGRAMMATIC else "leave it off") + "".join(f"; {gain}" for gain in gains))


def lines_of(records: list[Record]) -> list[str]:
    rules = {"Own kernels": linear_rows, "Verification": tensor_cores, "Programmatic launch": programmatic_launch}
    return [f"* {name}: {rule(records)}." for name, rule in rules.items()]
