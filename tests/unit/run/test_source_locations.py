"""Where replacements are defined: in the checkout, in Python, and nowhere else."""

from __future__ import annotations

import functools
import importlib.util
import math
from typing import TYPE_CHECKING, Any

import pytest

from ci_autotest.run.worker.context import source_locations
from ci_autotest.values.finding import Location

if TYPE_CHECKING:
    from pathlib import Path

KERNELS = """\
import functools


def logged(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper


def exp(x):
    return x


@logged
def sin(x):
    return x


class Kernel:
    def __call__(self, x):
        return x

    def __getattr__(self, name):  # whatever is asked of it, itself: no end to its wrappers
        return self


kernel = Kernel()
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "config").mkdir()
    return tmp_path / "repo"


def planted(folder: Path) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "planted_kernels.py"
    file.write_text(KERNELS)
    spec = importlib.util.spec_from_file_location("planted_kernels", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_source_locations__function_of_the_checkout__is_its_file_from_the_top_and_its_line(repository: Path) -> None:
    kernels = planted(repository / "src")

    assert source_locations({"torch.exp": kernels.exp, "torch.sin": kernels.sin}, repository / "config") == {
        "torch.exp": Location(file="src/planted_kernels.py", line=11),
        "torch.sin": Location(file="src/planted_kernels.py", line=15),
    }


def test_source_locations__what_is_no_function_of_python__has_none(repository: Path) -> None:
    kernels = planted(repository / "src")
    written = eval("lambda x: x")  # noqa: S307 - a function of no file
    functions = {"a": math.exp, "b": functools.partial(kernels.exp), "c": kernels.kernel, "d": written}

    assert source_locations(functions, repository) == {}


@pytest.mark.parametrize("folder", ["../elsewhere", ".venv/lib/python3.11/site-packages"])
def test_source_locations__outside_of_the_checkout_or_installed__has_none(repository: Path, folder: str) -> None:
    kernels = planted(repository / folder)

    assert source_locations({"torch.exp": kernels.exp}, repository) == {}


def test_source_locations__link_out_of_the_checkout__has_none(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (repository / "src").symlink_to(tmp_path / "elsewhere")
    kernels = planted(repository / "src")

    assert source_locations({"torch.exp": kernels.exp}, repository) == {}


def test_source_locations__no_git__is_from_the_configuration_s_folder(tmp_path: Path) -> None:
    kernels = planted(tmp_path / "a" / "src")

    assert source_locations({"torch.exp": kernels.exp}, tmp_path / "a") == {
        "torch.exp": Location(file="src/planted_kernels.py", line=11)
    }
