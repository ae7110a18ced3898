"""scikit-build-core, which also gets LibTorch for the build where there is none.

LibTorch is looked for as cmake/libtorch.cmake does: LIBTORCH, then .venv. Without either the build's own environment gets
the wheels of tools/requirements.txt.
"""

import importlib.util
import os
import pathlib

from scikit_build_core import build as skbuild
from scikit_build_core.build import *  # noqa: F401,F403

ROOT = pathlib.Path(__file__).resolve().parents[2]


def libtorch_is_there():
    return bool(os.environ.get("LIBTORCH")) or any(ROOT.glob(".venv/lib/python3*/site-packages/torch"))


def get_requires_for_build_wheel(config_settings=None):
    requirements = list(skbuild.get_requires_for_build_wheel(config_settings))
    if not libtorch_is_there():
        lines = (ROOT / "tools/requirements.txt").read_text().splitlines()
        requirements += [line for line in lines if line and not line.startswith("#")]
    return requirements


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    if not libtorch_is_there():
        found = importlib.util.find_spec("torch")
        if found is not None:
            os.environ["LIBTORCH"] = str(pathlib.Path(found.origin).parent)
    return skbuild.build_wheel(wheel_directory, config_settings, metadata_directory)
