"""Tests of the package beside torch: versions, orders of imports, what becomes of torch; and of docs/python.md."""

import contextlib
import io
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import draftsmith
from fixtures import PROGRAM, python, trained

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A number that depends on threads, products and random numbers of torch.
TORCH_WORK = """
import torch
def torch_work():
    torch.manual_seed(3)
    a, b = torch.randn(300, 200, requires_grad=True), torch.randn(200, 400)
    loss = torch.softmax(a @ b, -1).pow(2).sum() + torch.bmm(a.view(3, 100, 200), b.expand(3, 200, 400)).sin().sum()
    loss.backward()
    return (loss.item(), a.grad.double().sum().item(), torch.get_num_threads(),
            torch.backends.cuda.matmul.allow_tf32, torch.is_grad_enabled())
"""


class Import(unittest.TestCase):
    def test_works_before_and_after_torch(self):
        for first, second in (("torch", "draftsmith"), ("draftsmith", "torch")):
            found = python(f"import {first}; import {second}\nprint(torch.ones(2).sum().item(), len(draftsmith.options()) > 30)")
            self.assertEqual(found.stdout, "2.0 True\n")

    def test_leaves_torch_as_it_was(self):
        code = TORCH_WORK + """
import sys
torch.set_num_threads(2)
torch.backends.cuda.matmul.allow_tf32 = True
before = torch_work()
import draftsmith
assert torch_work() == before, "import"
model = draftsmith.load(sys.argv[1], drafter=sys.argv[2], device="cpu", threads=1)
model.generate([[5, 6, 7, 1]], method="assisted")
assert torch_work() == before, "generate"
draftsmith.train(draftsmith.recipe("tiny"), sys.argv[3], until="target", quiet=True, device="cpu", threads=1,
                 set={"target.training.length": "3 steps"})
assert torch_work() == before, "train"
"""
        with tempfile.TemporaryDirectory() as folder:
            python(code, trained() / "target/model", trained() / "drafter/model", folder)

    def test_exports_nothing_but_its_initialisation(self):
        module = draftsmith._draftsmith.__file__
        symbols = subprocess.run(["nm", "-D", "--defined-only", module], capture_output=True, text=True, check=True).stdout
        names = [line.split()[-1] for line in symbols.splitlines()]
        self.assertEqual(names, ["PyInit__draftsmith"])
        libraries = subprocess.run(["readelf", "-d", module], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("tcmalloc", libraries)

    def beside_torch(self, text, code, status):
        """What Python says where another torch, of this text, is found before the real one."""
        with tempfile.TemporaryDirectory() as folder:
            torch = pathlib.Path(folder) / "torch"
            torch.mkdir()
            (torch / "__init__.py").write_text(text)
            (pathlib.Path(folder) / "torch-2.10.0.dist-info").mkdir()
            (pathlib.Path(folder) / "torch-2.10.0.dist-info/METADATA").write_text("Name: torch\nVersion: 2.10.0\n")
            paths = os.pathsep.join([folder, os.environ["PYTHONPATH"]])
            return python(code, status=status, env={**os.environ, "PYTHONPATH": paths}).stderr

    def test_another_torch_is_refused(self):
        printed = self.beside_torch("__version__ = '2.10.0+cpu'\n", "import draftsmith", status=1)
        message = printed[printed.rindex("ImportError"):]
        self.assertRegex(message, r"expected: torch 2\.\d+\.\*")
        self.assertIn("found:    torch 2.10.0+cpu", message)
        self.assertIn("hint:     pip install", message)

    def test_the_program_refuses_another_torch_without_importing_it(self):
        message = self.beside_torch("raise SystemExit('imported')\n", "import draftsmith_program\ndraftsmith_program.main()",
                                    status=2)
        self.assertRegex(message, r"expected: torch 2\.\d+\.\*\n  found:    torch 2\.10\.0 in /")
        self.assertIn("hint:     pip install", message)

    def test_works_without_avx2(self):
        environment = {**os.environ, "DRAFTSMITH_CPU": "portable", "ATEN_CPU_CAPABILITY": "default"}
        code = ("import draftsmith, sys\n"
                "print(draftsmith.load(sys.argv[1], device='cpu').generate([[5, 6, 7, 1]])[0].ids.tolist())")
        portable = python(code, trained() / "target/model", env=environment)
        self.assertEqual(portable.stdout, python(code, trained() / "target/model").stdout)

    def test_the_program_is_the_packages(self):
        version = subprocess.run([*PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
        self.assertTrue(version.startswith(f"draftsmith {draftsmith.__version__} "), version)


class Document(unittest.TestCase):
    def test_the_code_runs(self):
        page = ROOT / "docs/python.md"
        blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        self.assertGreater(len(blocks), 5)
        before, names, printed = os.getcwd(), {}, io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed):
            os.chdir(folder)
            try:
                for number, block in enumerate(blocks, 1):
                    exec(compile(block, f"{page.name}, block {number}", "exec"), names)
            finally:
                os.chdir(before)
        self.assertIn("did you mean 'window'?", printed.getvalue())
        self.assertIn("assisted", printed.getvalue())


if __name__ == "__main__":
    unittest.main()
