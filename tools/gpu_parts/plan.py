"""The plan: the steps of a run in their order. What matters most comes first, in case that the time runs out."""

from __future__ import annotations

import dataclasses

from gpu_parts import checks, packing, speeds
from gpu_parts.places import Problem
from gpu_parts.running import Step

TOTAL_S = 570.0  # of a run; a lent machine ends a command after 600 s
DRY_LIMIT_S = 240.0  # of each step of a dry run, which must hold beside other work on two cores

STEPS = (
    Step("smoke", "Versions and a first token", 60, checks.smoke),
    Step("suites", "Tests on the device", 80, checks.suites),
    Step("requests", "Requests of the host", 45, speeds.requests),
    Step("lossless", "Speculative decoding beside greedy", 45, checks.lossless),
    Step("parity", "Parity with Transformers", 70, checks.parity),
    Step("decoding", "Decoding", 180, speeds.decoding),
    Step("training", "Training", 70, speeds.training),
    Step("peers", "Transformers", 110, speeds.peers),
)
# What else a dry run tries: on the machine with a GPU it was done before.
DRY_STEPS = (Step("pack", "Packing one program", 60, packing.rehearse), *STEPS)


def chosen(names: str | None, dry: bool) -> tuple[Step, ...]:
    """The steps named by "a,b", in the plan's order; all by default."""
    steps = tuple(dataclasses.replace(step, limit_s=DRY_LIMIT_S) for step in DRY_STEPS) if dry else STEPS
    if not names:
        return steps
    wanted = [name for name in names.split(",") if name]
    known = [step.name for step in steps]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise Problem("--steps: unknown step", ", ".join(known), ", ".join(unknown))
    return tuple(step for step in steps if step.name in wanted)
