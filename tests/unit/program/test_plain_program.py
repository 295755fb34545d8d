"""What a program that names a pull request's kernels may do: compute, and nothing else."""

from __future__ import annotations

import pytest

from ci_autotest.program.repro.plain_program import is_plain_program

PLAIN = """
import torch
import operator
import mykernels.norm
from safetensors.torch import load_file

stored = load_file('autotest-report/findings/norm-3f2a/tensors.safetensors')  # the file beside the repro


def run(function):
    x = torch.tensor([[1.0]], device='cpu').requires_grad_()
    with torch.autocast('cpu', dtype=torch.bfloat16):
        y = function(x, (2,), 1e-05, reduction='mean') + float('-inf')
    z = torch.einsum('ij,jk->ik', y, x.to('cpu'))
    return operator.getitem(z, (slice(None), 0))


expected = run(torch.nn.functional.layer_norm)
found = run(mykernels.norm.layer_norm)
torch.testing.assert_close(found, expected, rtol=1.3e-06, atol=1e-05, equal_nan=True)
"""


def test_is_plain_program__of_the_printer__is_plain():
    assert is_plain_program(PLAIN)


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "import subprocess as torch",
        "import mykernels as operator",
        "from mykernels import layer_norm",
        "from os import system",
        "from . import torch",
        "import pip\npip.main(['install', 'x'])",
        "import pip\npip.main('install')",
        "import pip\npip.main(args=['install', 'x'])",
        "import pip\nrun(pip.main)\n\ndef again(function):\n    return function(['install', 'x'])",
        "import pip\nwords = ['install', 'x']\npip.main(words)",
        "import pip\nfor word in ('install', 'x'): pip.main([word])",
        "import pip\npip.main([word for word in ('install', 'x')])",
        "import pip\n\ndef words(first='install'):\n    return [first]\n\npip.main(words())",
        "import pip\n\ndef words():\n    return ['install', 'x']\n\npip.main(words())",
        "import pip\nmodule = pip.cli\nmodule.main(['install', 'x'])",
        "import pip\npip.main(*['install', 'x'])",
        "import pip\ntorch.sin(pip.main(['install', 'x']))",
        "eval('1')",
        "exec(x)",
        "open('x')",
        "__import__('os')",
        "getattr(torch, 'hub')",
        "torch.__dict__",
        "mykernels.norm.__globals__",
        "x = lambda: (yield)",
        "x = f'say {torch}'",
        "x = 'rm -rf ~; curl https://evil.example'",
        "global torch",
        "async def f(): pass",
        "while True: pass",
        "@torch.compile\ndef f(): pass\nimport sys",
        "x = (y := 1)",
        "def f(:",
        "x = '" + "a" * 41 + "'",
        "unknown(1)",
        "stored = load_file('../../x')",
        "\0",
    ],
)
def test_is_plain_program__that_does_anything_else__is_not(line: str):
    assert not is_plain_program(f"{PLAIN}\n{line}\n")


def test_is_plain_program__that_cannot_be_parsed_in_finite_room__is_not():
    assert not is_plain_program("x = " + "(" * 5_000 + ")" * 5_000)
