"""What tools/serving compares with: our models, exports, prompts and greedy outputs; acceptance by position, and
whether other ids are mere rounding."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import re
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ROOT / "tools/serving_parts"
PEERS = ROOT / ".venv-peers/bin/python"
WINDOW = 5
PROMPT_TOKENS = 24
# Engines add in another order. Where our two largest logits are closer than this, either id is right.
MARGIN = 1e-3
# Of a comparison of two shares: five positions at once give a false alarm in 3 of 10,000 tables.
Z_DIFFERENT = 4.0
DRAFTS = re.compile(r"^vllm:spec_decode_num_drafts_total\{.*\} (.*)$", re.MULTILINE)
KEPT = re.compile(r'^vllm:spec_decode_num_accepted_tokens_per_pos_total\{.*position="(\d+)".*\} (.*)$', re.MULTILINE)


@dataclasses.dataclass
class Acceptance:
    """Drafts of a run, and how many of them kept at least the first, the first two, ... of their tokens."""

    drafts: int
    kept: list[int]


def acceptance_of_metrics(text: str, window: int) -> Acceptance:
    """Returns the acceptance in a page of vLLM's metrics (Prometheus' text format), summed over engines."""
    drafts = sum(int(float(value)) for value in DRAFTS.findall(text))
    if not drafts:
        raise ValueError("vLLM's metrics hold no drafts\n  expected: vllm:spec_decode_num_drafts_total above 0\n"
                         "  hint:     was the server started with --speculative-config?")
    return Acceptance(drafts, [sum(int(float(value)) for at, value in KEPT.findall(text) if int(at) == position)
                               for position in range(window)])


def within_sampling_error(one: Acceptance, other: Acceptance) -> bool:
    """Returns whether the shares of all positions may be of one distribution (two shares pooled, Z_DIFFERENT)."""
    for a, b in zip(one.kept, other.kept):
        pooled = (a + b) / (one.drafts + other.drafts)
        error = math.sqrt(pooled * (1 - pooled) * (1 / one.drafts + 1 / other.drafts))
        if abs(a / one.drafts - b / other.drafts) > Z_DIFFERENT * error + 1e-12:
            return False
    return True


def first_difference(ours: list[int], theirs: list[int], eos: int | None) -> int | None:
    """Returns the first position where the outputs differ; None if they are equal. An EOS at the end is optional."""
    ours, theirs = (ids[:-1] if ids and ids[-1] == eos else ids for ids in (ours, theirs))
    for position, (a, b) in enumerate(zip(ours, theirs)):
        if a != b:
            return position
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))


def is_rounding(logits: list[float], ours: int, theirs: int) -> bool:
    """Returns whether both ids are as good as the best: within MARGIN of the largest logit."""
    return max(logits) - min(logits[ours], logits[theirs]) < MARGIN


def printed_command(output: str, first_word: str) -> list[str]:
    """Returns the words of the command that `draftsmith export` printed."""
    for line in output.splitlines():
        start = line.find(first_word + " ")
        if start >= 0:
            return shlex.split(line[start:])
    raise ValueError(f"the export printed no command of {first_word}\n  found: {output.strip()}")


def acceptance_table(columns: dict[str, Acceptance]) -> str:
    """Returns a Markdown table of shares by position."""
    lines = [["kept at least", *(f"{name}, {column.drafts} drafts" for name, column in columns.items())]]
    lines.append(["---"] * len(lines[0]))
    for position in range(WINDOW):
        lines.append([str(position + 1), *(f"{one.kept[position] / one.drafts:.3f}" for one in columns.values())])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def environment(path: pathlib.Path, package: str) -> bool:
    """Makes a virtual environment for an engine. Returns whether it was there, with the package."""
    if list(path.glob(f"lib/python*/site-packages/{package}/__init__.py")):
        return True
    subprocess.run(["python3", "-m", "venv", str(path)], check=True)
    return False


class Ours:
    """The program, a folder for its results, and the sizes of a run."""

    def __init__(self, options):
        self.options = options
        self.work = options.work.resolve()
        self.models = self.work / "models"
        self.target = self.models / "target/model"
        self.drafter = self.models / "drafter/model"

    def run(self, *arguments):
        environment = {"DRAFTSMITH_DATA": str(ROOT / "../shared/data"), **os.environ}
        result = subprocess.run([str(self.options.draftsmith), *map(str, arguments)], cwd=self.work,
                                env=environment, capture_output=True, text=True)
        if result.returncode != 0:
            raise RuntimeError(f"draftsmith {' '.join(map(str, arguments))} failed:\n{result.stdout}{result.stderr}")
        return result

    def train(self):
        """Trains the models, or finds them finished."""
        print("models: tools/serving_parts/models.toml", flush=True)
        self.run("train", PARTS / "models.toml", "--work", self.models)

    def export(self, model, name, form):
        """Exports the model anew; returns what was printed."""
        subprocess.run(["rm", "-rf", str(self.work / name)], check=True)
        result = self.run("export", "--model", model, "--format", form, "--out", name,
                          *(["--target", "target-vllm"] if form == "vllm" else []))
        return result.stdout + result.stderr

    def prompts(self):
        """Returns ids: the beginnings of stories that were not trained on."""
        data = pathlib.Path(os.environ.get("DRAFTSMITH_DATA", ROOT / "../shared/data"))
        stories = (data / "tinystories/tinystories_2MiB_eot.txt").read_text().split("<|endoftext|>")
        lines = [" ".join(story.split())[:200] for story in stories[2000:]]
        lines = [line for line in lines if len(line) == 200][:self.options.prompts]
        if len(lines) != self.options.prompts:
            raise RuntimeError(f"expected {self.options.prompts} prompts, found {len(lines)}")
        (self.work / "prompts.txt").write_text("".join(line + "\n" for line in lines))
        printed = self.run("data", "tokenize", "--model", self.models / "tokenizer/spiece.model",
                           "--input", self.work / "prompts.txt").stdout
        return [[int(word) for word in line.split()][:PROMPT_TOKENS] for line in printed.splitlines()]

    def generate(self, prompts, *arguments, new_tokens=None):
        """Returns one JSON object a prompt."""
        path = self.work / "prompts.ids"
        path.write_text("".join(" ".join(map(str, ids)) + "\n" for ids in prompts))
        printed = self.run("generate", "--model", self.target, "--ids", "--json", "--input", path, "--quiet",
                           "--threads", self.options.threads, "--max-new-tokens", new_tokens or self.options.new_tokens,
                           *arguments).stdout
        return [json.loads(line) for line in printed.splitlines()]

    def acceptance(self, prompts, greedy):
        """Returns the acceptance of our drafts, and problems. `greedy` has the ids of the prompts' outputs. Engines take
        an output's first token from the run of the prompt and draft from the second on; so ours begin there, too."""
        begun = [(prompt + ids[:1], ids[1:]) for prompt, ids in zip(prompts, greedy) if len(ids) > 1]
        outputs = self.generate([prompt for prompt, _ in begun], "--drafter", self.drafter, "--method", "speculative",
                                "--temperature", 0, "--window", WINDOW, new_tokens=self.options.new_tokens - 1)
        equal = [output["ids"] for output in outputs] == [rest for _, rest in begun]
        histograms = [output["stats"]["accepted_histogram"] for output in outputs]  # drafts by the tokens they kept
        kept = [sum(sum(histogram[position + 1:]) for histogram in histograms) for position in range(WINDOW)]
        return (Acceptance(sum(map(sum, histograms)), kept),
                [] if equal else ["our speculative ids are not our greedy ids"])

    def logits_at(self, prompts, outputs, positions):
        """Returns {prompt number: our logits at the position of its output}."""
        (self.work / "margin.source").write_text("".join(" ".join(map(str, prompts[i])) + "\n" for i in positions))
        (self.work / "margin.target").write_text("".join(" ".join(map(str, outputs[i])) + "\n" for i in positions))
        self.run("logits", "--model", self.target, "--ids", "--source", "margin.source", "--target", "margin.target",
                 "--out", "margin.h5", "--quiet")
        reader = "import h5py, json, sys\nfile = h5py.File('margin.h5')\nprint(json.dumps(" \
            "[file[f'logits/{i}'][t].tolist() for i, t in enumerate(json.loads(sys.argv[1]))]))"
        result = subprocess.run([str(PEERS), "-c", reader, json.dumps(list(positions.values()))], cwd=self.work,
                                check=True, capture_output=True, text=True)
        return dict(zip(positions, json.loads(result.stdout)))

    def compare(self, prompts, ours, theirs, eos):
        """Returns (equal outputs, outputs that differ by rounding alone, problems)."""
        positions = {i: at for i, (a, b) in enumerate(zip(ours, theirs))
                     if (at := first_difference(a, b, eos)) is not None}
        if len(ours) != len(theirs):
            return 0, 0, [f"{len(theirs)} outputs for {len(ours)} prompts"]
        problems, rounded = [], 0
        reached = {i: at for i, at in positions.items() if at < min(len(ours[i]), len(theirs[i]))}
        logits = self.logits_at(prompts, ours, reached) if reached else {}
        for i, at in positions.items():
            if i in logits and is_rounding(logits[i], ours[i][at], theirs[i][at]):
                rounded += 1
            else:
                problems.append(f"prompt {i}: other ids from position {at} on, {ours[i][at:at + 3]} ours, "
                                f"{theirs[i][at:at + 3]} theirs")
        return len(ours) - len(positions), rounded, problems

    def eos(self):
        found = json.loads((self.target / "config.json").read_text()).get("eos_token_id")
        return found[0] if isinstance(found, list) else found
