"""Twelve kinds of kernel in one run: the planted fault of each is found, under its operator, and its repro runs alone."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.projects import Project, outcomes, together

REFS = """
import torch


def swiglu(x, gate):
    return torch.nn.functional.silu(x) * gate


def rope(x, cos, sin):
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


def quantized_matmul(a, b):
    return ((a.int() @ b.int()) // 8).clamp(-128, 127).to(torch.int8)


def float8_matmul(a, b):
    return (a.float() @ b.float()).bfloat16()


def histogram(index, weights):
    return torch.zeros(8).index_add(0, index, weights)


class Gate(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.left, self.right = torch.nn.Linear(size, size), torch.nn.Linear(size, size)

    def forward(self, x):
        return torch.sigmoid(self.left(x)) * self.right(x)
"""
KERNELS = """
import ctypes
from pathlib import Path

import torch
from refs import Gate as PlainGate


def softmax(x, dim):
    weights = torch.exp(x)  # torch function: without the greatest element, large inputs overflow
    return weights / weights.sum(dim, keepdim=True)


def swiglu(x, gate):  # own operator: another constant
    return x * torch.sigmoid(1.01 * x) * gate


class Softplus(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.nn.functional.softplus(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * torch.tanh(x)  # autograd.Function: sigmoid


def softplus(x):
    return Softplus.apply(x)


class Gate(PlainGate):  # module: the halves are exchanged
    def forward(self, x):
        return torch.sigmoid(self.right(x)) * self.left(x)


_LIBRARY = ctypes.CDLL(str(Path(__file__).parent / "libsquare.so"))


def square(x):
    out = torch.zeros_like(x)
    _LIBRARY.square(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), x.numel())
    return out


def quantized_matmul(a, b):
    return ((a.int() @ b.int()) // 8).to(torch.int8)  # int8: wraps around instead of saturating


def float8_matmul(a, b):
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float8_e4m3fn)
    for k in range(a.shape[1]):  # fp8: accumulates in float8
        total = (total.float() + a[:, k : k + 1].float() @ b[k : k + 1].float()).to(torch.float8_e4m3fn)
    return total.bfloat16()


_CONFIGURATIONS = {}


def _scatter(out, index, weights, block):
    for start in range(0, len(index), block):
        out.index_add_(0, index[start : start + block], weights[start : start + block])


def histogram(index, weights):
    out = torch.zeros(8)
    if len(index) not in _CONFIGURATIONS:
        for block in (1, 4):  # autotuned: the trials of a new size add to the result as well
            _scatter(out, index, weights, block)
        _CONFIGURATIONS[len(index)] = 4
    _scatter(out, index, weights, _CONFIGURATIONS[len(index)])
    return out
"""
NUMBA = """
import numba
import numpy as np
import torch


@numba.njit
def _cumsum(x, out):
    total = np.float32(0)
    for i in range(x.shape[0]):
        out[i] = total  # Numba: the sum before the element
        total += x[i]


def cumsum(x, dim):
    out = np.empty_like(x.numpy())
    _cumsum(x.numpy(), out)
    return torch.from_numpy(out)
"""
TRITON = """
from pathlib import Path

import torch
import triton
import triton.language as tl

# Its process replays the other tests too.
torch.ops.load_library(str(Path(__file__).with_name("libcppops.so")))


@triton.jit
def _rope(x, cos, sin, out, tokens, half, block: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, block)
    inside = at < half - 1  # Triton: the last element of each half is left out
    angle = (row % tokens) * half + at
    left = tl.load(x + row * 2 * half + at, mask=inside, other=0.0)
    right = tl.load(x + row * 2 * half + half + at, mask=inside, other=0.0)
    c, s = tl.load(cos + angle, mask=inside, other=0.0), tl.load(sin + angle, mask=inside, other=0.0)
    tl.store(out + row * 2 * half + at, left * c - right * s, mask=inside)
    tl.store(out + row * 2 * half + half + at, right * c + left * s, mask=inside)


def rope(x, cos, sin):
    tokens, size = x.shape[-2:]
    out = torch.zeros_like(x)
    if x.numel():
        _rope[(x.numel() // size,)](x, cos, sin, out, tokens, size // 2, triton.next_power_of_2(size // 2))
    return out
"""
C = """
void square(const float* from, float* to, int count) {
    for (int i = 0; i + 1 < count; ++i) to[i] = from[i] * from[i];  /* ctypes: one element too few */
}
"""
CPP = """
#include <ATen/ATen.h>
#include <torch/library.h>

static at::Tensor glu(const at::Tensor& x, const at::Tensor& gate) { return at::sigmoid(gate) * x; }
static at::Tensor fast(const at::Tensor& x, const at::Tensor& gate) { return at::sigmoid(x) * gate; }

TORCH_LIBRARY(cppops, m) {
    m.def("glu(Tensor x, Tensor gate) -> Tensor", glu);
    m.def("fast(Tensor x, Tensor gate) -> Tensor", fast);
}
"""
TESTS = """
import torch as plain
from refs import Gate, float8_matmul, histogram, quantized_matmul, rope, swiglu


@autotest(n=20)
def torch_function():
    return torch.softmax(random_tensor(2), dim=1)


@autotest(n=4)
def own_operator():
    return swiglu(random_tensor(2, 3, 4), random_tensor(2, 3, 4))


@autotest(n=4)
def torch_ops():
    return torch.ops.cppops.glu(random_tensor(2, 3, 4), random_tensor(2, 3, 4))


@autotest(n=4)
def autograd_function():
    return torch.nn.functional.softplus(random_tensor(2))


@autotest(n=4)
def module():
    return Gate(3)(random_tensor(2, 2, 3))


@autotest(n=4, profiles=())
def triton():
    tokens, half = random(1, 5).to(int), random(1, 9).to(int)
    angles = [random_tensor(2, dim0=tokens, dim1=half) for _ in range(2)]
    return rope(random_tensor(3, dim1=tokens, dim2=half * 2), *angles)


@autotest(n=4, profiles=())
def numba():
    return torch.cumsum(random_tensor(1), dim=0)


@autotest(n=4, profiles=())
def ctypes():
    return torch.square(random_tensor(2))


@autotest(n=4, profiles=())
def numpy():
    return torch.remainder(random_tensor(1, 5), random_tensor(1, 5))  # NumPy: fmod has the sign of the other argument


@autotest(n=4)
def int8():
    sizes = {"low": -100, "high": 100, "dtype": plain.int8}
    return quantized_matmul(random_tensor(2, 3, 8, **sizes), random_tensor(2, 8, 4, **sizes))


@autotest(n=4, profiles=(), dtypes=(plain.float8_e4m3fn,))
def float8():
    return float8_matmul(random_tensor(2, 3, 32), random_tensor(2, 32, 4))


@autotest(n=4, profiles=())
def autotuned():
    size = random(1, 20).to(int)
    index = random_tensor(1, size, low=0, high=8, dtype=int)
    return histogram(index, random_tensor(1, size))
"""
#: The kind's test: the operator, and the kinds of finding that its planted fault may show as.
KINDS = {
    "torch_function": ("torch.nn.functional.softmax", {"value", "gradient"}),
    "own_operator": ("refs.swiglu", {"value", "gradient"}),
    "torch_ops": ("torch.ops.cppops.glu", {"value", "gradient"}),
    "autograd_function": ("torch.nn.functional.softplus", {"gradient"}),
    "module": ("refs.Gate", {"value", "gradient"}),
    "triton": ("refs.rope", {"value"}),
    "numba": ("torch.cumsum", {"value"}),
    "ctypes": ("torch.square", {"value"}),
    "numpy": ("torch.remainder", {"value"}),
    "int8": ("refs.quantized_matmul", {"value"}),
    "float8": ("refs.float8_matmul", {"value"}),
    "autotuned": ("refs.histogram", {"value", "nondeterminism"}),
}
CANDIDATES: list[dict[str, Any]] = [
    {
        "name": "kernels", "backend": "substitute", "load": ["libcppops.so"],
        "replace": {
            "torch.softmax": "kernels.softmax", "refs.swiglu": "kernels.swiglu",
            "torch.ops.cppops.glu": "torch.ops.cppops.fast", "torch.nn.functional.softplus": "kernels.softplus",
            "refs.Gate": "kernels.Gate", "torch.cumsum": "numbakernels.cumsum", "torch.square": "kernels.square",
            "torch.remainder": "numpy.fmod", "refs.quantized_matmul": "kernels.quantized_matmul",
            "refs.float8_matmul": "kernels.float8_matmul", "refs.histogram": "kernels.histogram",
        },
        "forward_only": ["torch.cumsum", "torch.square", "torch.remainder", "refs.float8_matmul"],
    },
    {
        "name": "triton", "backend": "substitute", "env": {"TRITON_INTERPRET": "1"},
        "replace": {"refs.rope": "tritonkernels.rope"}, "forward_only": True,
    },
]  # fmt: skip
MISSING = [name for name in ("triton", "numba") if importlib.util.find_spec(name) is None]
MISSING += [name for name in ("g++",) if shutil.which(name) is None]
pytestmark = [pytest.mark.heavy, pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("kinds"))
    files = {
        "refs.py": REFS,
        "kernels.py": KERNELS,
        "numbakernels.py": NUMBA,
        "tritonkernels.py": TRITON,
        "square.c": C,
        "cppops.cpp": CPP,
    }
    for name, text in files.items():
        project.write(name, text)
    path = Path(torch.__file__).parent
    folders = [path / "include", path / "include" / "torch" / "csrc" / "api" / "include"]
    for words in (
        ["-x", "c", "square.c", "-o", "libsquare.so"],
        ["-std=c++20", "cppops.cpp", "-o", "libcppops.so", *(f"-I{each}" for each in folders), f"-L{path / 'lib'}",
         "-ltorch_cpu", "-lc10"],
    ):  # fmt: skip
        subprocess.run(["g++", "-O0", "-fPIC", "-shared", *words], cwd=project.folder, check=True)
    project.configure(candidates=CANDIDATES)
    project.tests(TESTS)
    done = project.run()
    assert done.status == 1, done.said
    return project


def test_run__fault_of_each_kind_of_kernel__is_found_under_its_operator(project: Project):
    report = project.report()
    found = {kind: set() for kind in KINDS}
    for finding in report["findings"]:
        for test in finding["tests"]:
            found[test.rpartition("::")[2]].add((finding["operator"], finding["kind"], finding["outcome"]))
    table = {kind: {(operator, outcome) for operator, _, outcome in rows} for kind, rows in found.items()}
    assert table == {kind: {(operator, "misaligned")} for kind, (operator, _) in KINDS.items()}
    for kind, (_, expected) in KINDS.items():
        assert {shown for _, shown, _ in found[kind]} & expected, (kind, found[kind])
    compared = outcomes(report)
    assert {kind for kind in KINDS if "misaligned" in {compared[kind, "kernels"], compared[kind, "triton"]}} == {*KINDS}


def test_repro__of_each_kind_of_kernel__runs_alone(project: Project):
    findings = project.report()["findings"]
    done = together(*(lambda finding=finding: project.repro(finding) for finding in findings))
    failed = {finding["operator"]: each.said for finding, each in zip(findings, done, strict=True) if each.status != 1}
    assert failed == {}
    assert all(finding["repro_verified"] for finding in findings)
