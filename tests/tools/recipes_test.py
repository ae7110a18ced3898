"""The recipes are valid, and so are the commands that their comments give, with every --set.

    recipes_test.py DRAFTSMITH
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DATA = pathlib.Path(os.environ.get("DRAFTSMITH_DATA", ROOT.parent / "shared/data"))
RECIPES = [recipe for recipe in sorted((ROOT / "recipes").glob("*.toml"))
           if DATA.is_dir() or "$DATA" not in recipe.read_text()]
DRAFTSMITH = pathlib.Path(sys.argv.pop()).resolve()


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

    def test_recipes_are_valid(self):
        self.assertTrue(RECIPES)
        for recipe in RECIPES:
            self.validate(recipe)

    def test_commands_in_comments_are_valid(self):
        larger = 0
        for recipe in RECIPES:
            found = commands(recipe)
            self.assertTrue(found, f"{recipe.name} says no command that runs it")
            for words in found:
                larger += "--set" in words
                self.assertIn(f"recipes/{recipe.name}", words)
                self.validate(recipe, *overrides(words))
        self.assertTrue(larger or not DATA.is_dir(), "no recipe says how to make it larger")


if __name__ == "__main__":
    unittest.main()
