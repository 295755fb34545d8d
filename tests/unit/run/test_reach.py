"""Which test files can reach Python's or numpy's global generators: only a proof saves seeding them."""

from __future__ import annotations

from pathlib import Path

import pytest

import ci_autotest.suite
from ci_autotest.run.reach import reaches_generators

SUITE = sorted(Path(ci_autotest.suite.__path__[0]).glob("*.py"))


@pytest.mark.parametrize(
    "source",
    [
        "import random",
        "import numpy as np",
        "from random import choice",
        "from numpy import random",
        "def body():\n    import random",
        "import my_helpers",
        "from . import helpers",
        "from .random import choice",
        "import torch.utils.data.random",
        "from torch.testing._internal.common_utils import np",
        "x = __import__('random')",
        "exec('import random')",
        "import functools\nfunctools.sys.modules['random']",
        "import torch\ntorch.utils.data.dataset.random.random()",
        "import importlib",
        "import pytest\npytest.importorskip('random').randint(0, 3)",
        "import sys",
        "this is no Python",
    ],
)
def test_reaches_generators__a_way_to_one__is_seen(tmp_path, source):
    (tmp_path / "test_a.py").write_text(source)
    assert reaches_generators(tmp_path / "test_a.py")


@pytest.mark.parametrize(
    "source",
    [
        "from ci_autotest import autotest, random, random_tensor, torch",
        "import torch\nimport math\nfrom torch import nn\nfrom torch.nn import functional as F",
        "from __future__ import annotations\nimport pytest, unittest\nfrom typing import Any",
        "from ci_autotest import torch\nx = torch.random.initial_seed()",
        "from ci_autotest import torch\nx = torch.ones(3).numpy()",
    ],
)
def test_reaches_generators__none__is_proved(tmp_path, source):
    (tmp_path / "test_a.py").write_text(source)
    assert not reaches_generators(tmp_path / "test_a.py")


def test_reaches_generators__no_file__may(tmp_path):
    assert reaches_generators(tmp_path / "absent.py")


@pytest.mark.parametrize("path", SUITE, ids=lambda path: path.stem)
def test_reaches_generators__shipped_suite__does_not(path):
    assert not reaches_generators(path)
