"""tools/serving transformers: assisted generation with our exports beside Draftsmith, ids and speed, in turns."""

from __future__ import annotations

import contextlib
import json
import subprocess

from serving_parts import arithmetic
from serving_parts.ours import PEERS, ROOT, WINDOW
from support import measuring

ROUNDS = 5


class Peer:
    """Transformers in a process of its own, which keeps its models loaded between rounds."""

    def __init__(self, ours, prompts):
        job = ours.work / f"transformers-{ours.name}.json"
        job.write_text(json.dumps({
            "target": str(ours.work / f"target-hf-{ours.name}"), "drafter": str(ours.work / f"drafter-hf-{ours.name}"),
            "prompts": prompts, "new_tokens": ours.options.new_tokens, "window": WINDOW,
            "threads": ours.options.threads}))
        self.process = subprocess.Popen(
            [str(PEERS), str(ROOT / "tools/serving_parts/transformers_peer.py"), str(job)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)

    def decode(self, mode):
        """Returns ids and seconds of all prompts; `mode` is alone or assisted."""
        self.process.stdin.write(mode + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("Transformers ended with an error, above")
        answer = json.loads(line)
        return answer["ids"], answer["seconds"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)


def decode_ours(ours, prompts, speculative):
    """Returns ids and seconds of Draftsmith's own clock, without loading, as Transformers' seconds are."""
    outputs, _ = ours.speculative(prompts) if speculative else ours.generate(prompts)
    seconds = sum(sum(output["stats"]["seconds"].values()) for output in outputs)
    return [output["ids"] for output in outputs], seconds


def measure(ours, peer, prompts):
    """Returns {program: [(ids, seconds) a round]}, the order turned from round to round."""
    programs = {
        "Draftsmith, greedy": lambda: decode_ours(ours, prompts, False),
        "Draftsmith, speculative": lambda: decode_ours(ours, prompts, True),
        "Transformers, greedy": lambda: peer.decode("alone"),
        "Transformers, assisted": lambda: peer.decode("assisted")}
    results = {name: [] for name in programs}
    for number in range(ROUNDS):
        for name in measuring.in_turns(programs, number):
            results[name].append(programs[name]())
    return results


def speed_table(results):
    """Returns tokens a second, and ratios of the same round: over the same program's greedy, over Transformers'."""
    speeds = {name: [sum(map(len, ids)) / seconds for ids, seconds in rounds] for name, rounds in results.items()}
    rows = []
    for name, values in speeds.items():
        program, mode = name.split(", ")
        other = "Transformers, " + ("greedy" if mode == "greedy" else "assisted")
        ratios = [[a / b for a, b in zip(values, speeds[base])] for base in (f"{program}, greedy", other)]
        rows.append([name, measuring.spread(values, 0), *(measuring.spread(ratio, 2) for ratio in ratios)])
    return arithmetic.table(["program", "tokens/s", "over its own greedy", "over Transformers, same mode"], rows)


def compare_pair(ours, prompts):
    """Returns (Markdown, problems) of one target and drafter."""
    ours.export(ours.target, f"target-hf-{ours.name}", "hf")
    ours.export(ours.drafter, f"drafter-hf-{ours.name}", "hf")
    with contextlib.closing(Peer(ours, prompts)) as peer:
        results = measure(ours, peer, prompts)
    reference = results["Draftsmith, greedy"][0][0]
    lines, problems = [], []
    for name, rounds in results.items():
        if any(ids != rounds[0][0] for ids, _ in rounds):
            problems.append(f"{ours.name}: {name} has other ids in another round")
        equal, rounded, differences = ours.compare(prompts, reference, rounds[0][0], ours.eos())
        lines.append(f"* {name}: {equal} equal, {rounded} by rounding, {len(differences)} differ")
        problems += [f"{ours.name}, {name}: {difference}" for difference in differences]
    return "\n\n".join([f"### {ours.title}", speed_table(results),
                        f"Ids of {len(prompts)} prompts beside Draftsmith's greedy ones:", "\n".join(lines)]), problems


def run(ours):
    """Returns (Markdown, problems)."""
    version = subprocess.run([str(PEERS), "-c", "import transformers; print(transformers.__version__)"],
                             check=True, capture_output=True, text=True).stdout.strip()
    sections, problems = [], []
    for pair in (ours, ours.translator()):
        pair.train()
        text, found = compare_pair(pair, pair.prompts())
        sections.append(text)
        problems += found
    head = f"## Transformers {version}\n\nAssisted generation with windows of {WINDOW} tokens, fp32, " \
        f"{ours.options.threads} thread, one prompt at a time; median (min–max) of {ROUNDS} rounds in turns, ratios " \
        "within a round. Each program's own clock, without loading.\n\nThe models are tiny: what a program does for " \
        "each call outweighs the model's work, so drafting does not pay and ratios say little of larger models. " \
        "Those are on the page [benchmarks](benchmarks.md)."
    return "\n\n".join([head, *sections]), problems
