"""Draftsmith's side of tools/serving: models, exports, prompts, greedy outputs with and without the drafter."""

from __future__ import annotations

import copy
import json
import os
import pathlib
import subprocess
import time

from serving_parts.arithmetic import acceptance_of_histogram, is_rounding, printed_command

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ROOT / "tools/serving_parts"
PEERS = ROOT / ".venv-peers/bin/python"
WINDOW = 5
PROMPT_TOKENS = 24


class Ours:
    """The program, a folder for its results, and the sizes of a run."""

    def __init__(self, options):
        self.options = options
        self.work = options.work.resolve()
        self.name, self.title = "llama", "A Llama that tells stories"
        self.recipe, self.models = PARTS / "models.toml", self.work / "models"
        self.target = self.models / "target/model"
        self.drafter = self.models / "aligned/model"
        self.pruned = self.models / "pruned/model"

    def translator(self):
        """Returns the same with a T5 and its drafter."""
        other = copy.copy(self)
        other.name, other.title = "t5", "A T5 that translates captions"
        other.recipe, other.models = PARTS / "translation.toml", self.work / "translation"
        other.target, other.drafter = (other.models / stage / "model" for stage in ("target", "small"))
        return other

    def run(self, *arguments, check=True):
        environment = {"DRAFTSMITH_DATA": str(ROOT / "../shared/data"), **os.environ}
        result = subprocess.run([str(self.options.draftsmith), *map(str, arguments)], cwd=self.work,
                                env=environment, capture_output=True, text=True)
        if check and result.returncode != 0:
            raise RuntimeError(f"draftsmith {' '.join(map(str, arguments))} failed:\n{result.stdout}{result.stderr}")
        return result

    def train(self):
        """Trains the models, or finds them finished."""
        print(f"models: tools/serving_parts/{self.recipe.name}", flush=True)
        self.run("train", self.recipe, "--work", self.models)

    def export(self, model, name, form):
        """Exports the model anew; returns its path and what was printed."""
        out = self.work / name
        subprocess.run(["rm", "-rf", str(out)], check=True)
        result = self.run("export", "--model", model, "--format", form, "--out", name,
                          *(["--target", "target-vllm"] if form == "vllm" else []))
        return out, result.stdout + result.stderr

    def export_pair(self, form):
        """Exports target and drafter; returns the words of the command that the drafter's export printed."""
        suffix = ".gguf" if form == "gguf" else ""
        self.export(self.target, f"target-{form}{suffix}", "hf" if form == "vllm" else form)
        _, printed = self.export(self.drafter, f"drafter-{form}{suffix}", form)
        return printed_command(printed, {"vllm": "vllm serve", "gguf": "llama-server"}.get(form, form))

    def prompts(self):
        """Returns ids: the beginnings of stories, or captions, that were not trained on."""
        data = pathlib.Path(os.environ.get("DRAFTSMITH_DATA", ROOT / "../shared/data"))
        if self.name == "t5":
            return [ids + [self.eos()] for ids in self.tokens((data / "multi30k/val.de").read_text().splitlines())]
        stories = (data / "tinystories/tinystories_2MiB_eot.txt").read_text().split("<|endoftext|>")
        stories = [" ".join(story.split()) for story in stories[2000:]]
        return [ids[:PROMPT_TOKENS] for ids in self.tokens([story[:200] for story in stories if len(story) > 200])]

    def tokens(self, lines):
        """Returns the ids of as many lines as the run asks for."""
        lines = lines[:self.options.prompts]
        if len(lines) != self.options.prompts:
            raise RuntimeError(f"expected {self.options.prompts} prompts, found {len(lines)}")
        (self.work / "prompts.txt").write_text("".join(line + "\n" for line in lines))
        printed = self.run("data", "tokenize", "--model", self.models / "tokenizer/spiece.model",
                           "--input", self.work / "prompts.txt").stdout
        return [[int(word) for word in line.split()] for line in printed.splitlines()]

    def generate(self, prompts, *arguments, new_tokens=None):
        """Returns one JSON object a prompt, and the seconds of the whole call."""
        path = self.work / "prompts.ids"
        path.write_text("".join(" ".join(map(str, ids)) + "\n" for ids in prompts))
        begin = time.monotonic()
        printed = self.run("generate", "--model", self.target, "--ids", "--json", "--input", path, "--quiet",
                           "--threads", self.options.threads, "--max-new-tokens", new_tokens or self.options.new_tokens,
                           *arguments).stdout
        return [json.loads(line) for line in printed.splitlines()], time.monotonic() - begin

    def speculative(self, prompts, new_tokens=None):
        """Greedy outputs with the drafter: the target's own ids, and counts of drafts."""
        return self.generate(prompts, "--drafter", self.drafter, "--method", "speculative", "--temperature", 0,
                             "--window", WINDOW, new_tokens=new_tokens)

    def acceptance(self, prompts, greedy):
        """Returns the acceptance of our drafts, and problems. `greedy` has the ids of the prompts' outputs. Engines take
        an output's first token from the run of the prompt and draft from the second on; so ours begin there, too."""
        begun = [(prompt + ids[:1], ids[1:]) for prompt, ids in zip(prompts, greedy) if len(ids) > 1]
        outputs, _ = self.speculative([prompt for prompt, _ in begun], new_tokens=self.options.new_tokens - 1)
        equal = [output["ids"] for output in outputs] == [rest for _, rest in begun]
        histograms = [output["stats"]["accepted_histogram"] for output in outputs]
        of_all = [sum(histogram[kept] for histogram in histograms) for kept in range(WINDOW + 1)]
        return (acceptance_of_histogram(of_all, WINDOW),
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
        from serving_parts.arithmetic import first_difference
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
