"""What an extension in C++ allocates by ``at::empty_like`` lies between guard bands too."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from ci_autotest.backends.result_bands import OutOfBoundsError, ResultBands

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")]

SOURCE = """
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

at::Tensor copy(const at::Tensor& x, int64_t beyond) {
  auto y = at::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = x.data_ptr<float>()[i];
  for (int64_t i = 0; i < beyond; ++i) y.data_ptr<float>()[x.numel() + i] = 7.0f;
  return y;
}

TORCH_LIBRARY(result_bands_extension, m) { m.def("copy(Tensor x, int beyond) -> Tensor"); }
TORCH_LIBRARY_IMPL(result_bands_extension, CPU, m) { m.impl("copy", &copy); }
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder, at = tmp_path_factory.mktemp("extension"), Path(torch.__file__).parent
    folder.joinpath("copy.cpp").write_text(SOURCE, "utf-8")
    headers = [f"-I{at / 'include'}", f"-I{at / 'include/torch/csrc/api/include'}"]
    command = ["g++", "-O0", "-std=c++20", "-shared", "-fPIC", *headers, "copy.cpp", "-o", "copy.so"]
    subprocess.run([*command, f"-L{at / 'lib'}", "-ltorch_cpu", "-lc10"], cwd=folder, check=True)
    torch.ops.load_library(str(folder / "copy.so"))
    return torch.ops.result_bands_extension.copy


@pytest.mark.parametrize("requires_grad", [False, True], ids=["plain", "with a gradient"])
def test_result_bands__extension_in_cpp__is_looked_into(copy, requires_grad):
    x = torch.ones(3, 4, requires_grad=requires_grad)
    words = r"writes 2 elements behind the float32\[3, 4\] that it gets from torch.empty_like"
    with pytest.raises(OutOfBoundsError, match=words), ResultBands(has_zeros=False):
        copy(x, 2)


def test_result_bands__right_extension__gives_its_result(copy):
    with ResultBands(has_zeros=False):
        found = copy(torch.arange(3.0), 0)
    assert found.tolist() == [0.0, 1.0, 2.0]
