"""What bench/scale measures: one process for each run, its seconds and its peak memory."""

import dataclasses
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import subprocess
import sys
import threading
import time

from support import random_models

T5_SMALL = random_models.Sizes(32128, 512, 8, 64, 2048, 6)
LLAMA = random_models.Sizes(32000, 512, 8, 64, 1376, 8, positions=16384)
DRAFTER = random_models.Sizes(0, 256, 4, 64, 1024, 2)
SOURCE, NEW_TOKENS = 32, 64
RECIPE = """name = "scale"
[small]
kind = "train"
corpus = {corpus}
tokenizer = {tokenizer}
architecture = {{ width = 64, heads = 2, head_width = 32, ff_width = 128, encoder_layers = 1, decoder_layers = 1 }}
training = {{ length = "{steps} steps" }}
"""


@dataclasses.dataclass(frozen=True)
class Run:
    """What one process does."""
    family: str = "t5"
    sizes: random_models.Sizes = T5_SMALL
    source: int = SOURCE     # tokens of a source or prompt
    batch: int = 1
    new_tokens: int = NEW_TOKENS
    pairs: int = 0           # a corpus of so many pairs is prepared instead,
    steps: int = 0           # and a model is trained on it for so many steps


class OwnMemory:
    """The most memory that a process has beside mapped files, in MB, looked at while it runs."""

    def __init__(self, pid):
        self.status, self.most = pathlib.Path(f"/proc/{pid}/status"), 0
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self):
        while True:
            try:
                own = [line for line in self.status.read_text().splitlines() if line.startswith("RssAnon:")]
            except OSError:
                own = []
            if not own:  # the process has ended
                return
            self.most = max(self.most, int(own[0].split()[1]) / 1024)
            time.sleep(0.02)

    def end(self):
        self.thread.join()
        return self.most


class Workplace:
    def __init__(self, folder, options):
        self.folder, self.options = pathlib.Path(folder), options

    def model(self, run):
        folder = self.folder / f"{run.family}-{run.sizes.vocabulary}-{run.sizes.width}"
        if not folder.exists():
            # In a process of its own: a child's peak memory counts from its parent's.
            writer = multiprocessing.Process(target=random_models.write_model, args=(folder, run.family, run.sizes))
            writer.start()
            writer.join()
        return folder

    def decoding(self, run):
        """Seconds of one batch, after one that warms up, and the process's peak memory."""
        numbers = random.Random(run.source)
        lines = self.folder / "sources.txt"
        with open(lines, "w") as file:
            for _ in range(2 * run.batch):
                file.write(" ".join(str(numbers.randrange(3, run.sizes.vocabulary)) for _ in range(run.source)) + "\n")
        output, _, peak = self.process(
            ["generate", "--model", self.model(run), "--input", lines, "--ids", "--json", "--method", "greedy",
             "--batch-size", run.batch, "--dtype", "fp32", "--device", "cpu", "--threads", self.options.threads,
             "--min-new-tokens", run.new_tokens, "--max-new-tokens", run.new_tokens])
        rows = [json.loads(line) for line in output.splitlines()][run.batch:]
        return sum(sum(row["stats"]["seconds"].values()) for row in rows), peak

    def corpus(self, run):
        """The file of a corpus, seconds and peak memory of its preparation."""
        language = self.folder / "language"
        if not language.exists():
            self.process(["data", "synth", "--out", language, "--train", 10000])
            self.process(["data", "train-tokenizer", "--input", language / "train.src", language / "train.tgt",
                          "--vocabulary", 1000, "--out", self.folder / "spiece.model"])
        for side in ("src", "tgt"):
            text = (language / f"train.{side}").read_text()
            with open(self.folder / f"pairs.{side}", "w") as file:
                if run.pairs < 10000:
                    file.writelines(text.splitlines(True)[:run.pairs])
                for _ in range(run.pairs // 10000):
                    file.write(text)
        out = self.folder / "corpus.h5"
        out.unlink(missing_ok=True)
        _, seconds, peak = self.process(
            ["data", "prepare", "--source", self.folder / "pairs.src", "--target", self.folder / "pairs.tgt",
             "--tokenizer", self.folder / "spiece.model", "--out", out, "--threads", self.options.threads, "--quiet"])
        return out, seconds, peak

    def training(self, run):
        """Seconds and peak memory of some steps of a very small model on a corpus."""
        corpus = self.folder / f"corpus-{run.pairs}.h5"
        if not corpus.exists():
            self.corpus(run)[0].rename(corpus)
        recipe = self.folder / "training.toml"
        recipe.write_text(RECIPE.format(corpus=json.dumps(str(corpus)), steps=run.steps,
                                        tokenizer=json.dumps(str(self.folder / "spiece.model"))))
        work = self.folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        _, seconds, peak = self.process(["train", recipe, "--work", work, "--threads", self.options.threads], own=True)
        return seconds, peak

    def measure(self, run):
        if run.steps:
            return self.training(run)
        return self.corpus(run)[1:] if run.pairs else self.decoding(run)

    def process(self, words, own=False):
        """Runs the program: its output, seconds and peak memory in MB, without that of mapped files if `own`. Ends this
        program if it fails."""
        output, errors = self.folder / "output.txt", self.folder / "errors.txt"
        start = time.monotonic()
        with open(output, "w") as out, open(errors, "w") as err:
            child = subprocess.Popen([str(self.options.draftsmith), *map(str, words)], stdout=out, stderr=err)
            watch = OwnMemory(child.pid) if own else None
            _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            sys.exit(f"error: draftsmith {' '.join(map(str, words))} failed:\n{errors.read_text()}")
        seconds = time.monotonic() - start
        return output.read_text(), seconds, watch.end() if own else usage.ru_maxrss / 1024
