"""Each recipe is valid, says the command that runs it, and runs to its end with tiny models on lines of made text.

    recipes_test.py DRAFTSMITH
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DRAFTSMITH = pathlib.Path(sys.argv.pop()).resolve()
DATA = pathlib.Path(os.environ.get("DRAFTSMITH_DATA", ROOT.parent / "shared/data"))
REAL_MODEL = "work/models/smollm2"
RECIPES = sorted((ROOT / "recipes").glob("*.toml"))
TINY = {"width": 16, "heads": 2, "head_width": 8, "ff_width": 24}


def make_data(root):
    """Forty lines in the place of each file that recipes name: words, in English the same words backwards."""
    words = [begin + end for begin in ("kalo", "mitu", "reso", "dorpa", "istu", "um") for end in ("", "l", "nke", "rt")]
    lines = [[words[(i * k + i // 7) % 24] for k in range(1, 3 + i % 5)] for i in range(40)]
    for name in {"spec_bench/question.jsonl", "questions.txt",
                 *re.findall(r"\$DATA/([\w/.]+)", "".join(recipe.read_text() for recipe in RECIPES))}:
        texts = [" ".join(one[::-1] if name.endswith(".en") else one) for one in lines]
        if name.endswith(".jsonl"):
            fields = ("dialogue", "text", "summary", "summary1", "summary2", "summary3")
            texts = [json.dumps({**dict.fromkeys(fields, one), "turns": [one], "category": "qa"}) for one in texts]
        elif name.endswith(("_eot.txt", ".tokens")):  # prompts are cut out of these
            texts = [9 * (text + " ") for text in texts]
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(("\n<|endoftext|>\n" if "_eot" in name else "\n").join(texts) + "\n")


def stages_of(name):
    """Stages by name, with those of included recipes."""
    recipe = tomllib.loads((ROOT / "recipes" / name).read_text())
    stages, included = {}, recipe.get("include", [])
    for one in included if isinstance(included, list) else [included]:
        own = stages_of(one["recipe"])
        stages.update(list(own.items())[:list(own).index(one["until"]) + 1])
    stages.update({key: value for key, value in recipe.items() if isinstance(value, dict) and "kind" in value})
    return stages


def tiny(stage):
    """The options of a stage that make it tiny."""
    few = {key: 20 for key in ("limit", "skip") if key in stage}
    if stage["kind"] in ("train", "heads"):
        shapes = [name for name in ("architecture", "deep_tandem.large") if name.split(".")[0] in stage]
        return {"training.length": "'2 steps'", "training.schedule.warmup": "'1 steps'",
                "training.validation.every": "'100 %'",
                **({"features.vocabulary_size": 20} if "vocabulary_size" in stage.get("features", {}) else {}),
                **{f"{shape}.{key}": value for shape in shapes for key, value in TINY.items()}}
    if stage["kind"] == "evaluate":
        one = {"max_new_tokens": 4, "repetitions": 1, "warmup": 0, "resamples": 10, "forced_lines": 1}
        if "dataset" in stage["task"][0]:
            return {**one, "task": "[{dataset = 'spec_bench', categories = ['qa'], chat = true, limit = 2}]"}
        return {**one, **{f"task.{task['name']}.{key}": value for task in stage["task"]
                          for key, value in (("limit", 2), ("timed", 2), ("skip", 20)) if key != "skip" or key in task}}
    return few | {"language": {"train": 60, "valid": 12, "test": 12},
                  "tokenizer": {"vocabulary": 60, "exact_size": "false"},
                  "prompts": {"text": "['data/questions.txt']", "held_out": 2},  # a tiny model writes nothing of use
                  "prune": {"decoder_layers": "'0,1'", **({"ff_width": 16} if "ff_width" in stage else {}),
                            **({"vocabulary_size": 300} if "vocabulary_size" in stage else {})},
                  "teacher-outputs": {"limit": 20, "max_new_tokens": 8},
                  "router-data": {"limit": 20, "max_new_tokens": 8}}.get(stage["kind"], {})


class Recipes(unittest.TestCase):
    def test_each_is_valid_and_says_the_command_that_runs_it(self):
        for recipe in RECIPES:
            text = recipe.read_text()
            self.assertIn(f"\n# build/release/draftsmith train recipes/{recipe.name}", "\n" + text)
            if ("$DATA" in text and not DATA.is_dir()) or (REAL_MODEL in text and not (ROOT / REAL_MODEL).is_dir()):
                continue
            comments = " ".join(line for line in text.splitlines() if line.startswith("#"))
            settings = [part for one in re.findall(r"--set ([\w.-]+=\w+)", comments) for part in ("--set", one)]
            result = subprocess.run([DRAFTSMITH, "validate", recipe, *settings], cwd=ROOT, text=True,
                                    capture_output=True)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def run_tiny(self, recipe, root):
        stages = stages_of(recipe)
        settings = {f"{name}.{key}": value for name, stage in stages.items() for key, value in tiny(stage).items()}
        command = [DRAFTSMITH, "train", ROOT / "recipes" / recipe, "--work", root / "work", "--threads", "1", "--quiet",
                   *(part for key, value in settings.items() for part in ("--set", f"{key}={value}"))]
        # Two lines of a tiny model take so little time that a busy machine makes impossible speeds of them, which fail
        # an evaluation; the next run measures them again.
        for _ in range(10):
            result = subprocess.run(command, capture_output=True, text=True, cwd=root,
                                    env={**os.environ, "DRAFTSMITH_DATA": root / "data"})
            if result.returncode == 0 or "measurement error" not in result.stderr:
                break
        self.assertEqual(result.returncode, 0, result.stdout[-3000:] + result.stderr[-3000:])

    def test_each_runs_to_its_end_with_tiny_models(self):
        """In one folder, where they find the stages that they share. SmolLM2 keeps tokenizer, template and 7 layers."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            make_data(root / "data")
            fetched = subprocess.run([ROOT / "tools/real_models", "smollm2"], capture_output=True, text=True,
                                     timeout=300, env={**os.environ, "DRAFTSMITH": DRAFTSMITH})
            if fetched.returncode == 0:
                (root / REAL_MODEL).parent.mkdir(parents=True)
                subprocess.run([DRAFTSMITH, "prune", "--model", ROOT / REAL_MODEL, "--out", root / REAL_MODEL,
                                "--decoder-layers=first:7", "--ff-width=32"], check=True, capture_output=True)
            for recipe in RECIPES:
                with self.subTest(recipe.name):
                    if REAL_MODEL in recipe.read_text() and fetched.returncode != 0:
                        self.skipTest(fetched.stderr)
                    self.run_tiny(recipe.name, root)


if __name__ == "__main__":
    unittest.main()
