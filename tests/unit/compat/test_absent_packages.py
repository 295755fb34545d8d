"""Packages that are not installed cost the tests that use them, and not the file."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from ci_autotest import random_tensor
from ci_autotest.compat.foreign_file import instead_of, run_file
from ci_autotest.compat.missing_names import MissingName
from ci_autotest.errors import UnsupportedReason
from tests.engine import record

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """import absent_package.part
import absent_package.more as more
from absent_package import one, two as other
import math, json as text
try:
    import absent_package.quick
    is_quick = True
except ImportError:
    is_quick = False
"""


def module_of(folder: Path, source: str) -> ModuleType:
    file = folder / "test_imports.py"
    file.write_text(source)
    module = ModuleType("imports")
    run_file(file, module, lambda _: None)
    return module


def test_run_file__absent_packages__are_named_and_the_rest_is_real(tmp_path: Path):
    module = module_of(tmp_path, SOURCE)
    shown = [repr(each) for each in (module.absent_package.part, module.more, module.one, module.other)]
    assert shown == [
        f"<absent_package.{name}, and absent_package is not installed>" for name in ("part", "more", "one", "two")
    ]
    assert (module.is_quick, module.math.pi > 3, module.text.loads("[1]")) == (False, True, [1])


def test_run_file__package_that_needs_an_absent_one__is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "needs_another.py").write_text("import absent_package")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="absent_package"):
        module_of(tmp_path, "import needs_another")


@pytest.mark.parametrize("path", ["packaging.version.parse", "pkg_resources.packaging.version.parse"])
def test_instead_of__packaging__is_a_copy_that_compares_versions(path: str):
    parse = instead_of(path, ModuleNotFoundError(name=path.partition(".")[0]))
    assert parse("1.10.0") > parse("1.9.1")


@pytest.mark.parametrize("use", [lambda name: name(1), lambda name: 2 * name.number, lambda name: name > 1])
def test_absent_package__used_in_a_test__the_case_is_unsupported_by_its_name(use):
    missing = instead_of("absent_package.part", ModuleNotFoundError(name="absent_package"))
    assert isinstance(missing, MissingName)

    def body():
        return random_tensor(1, 2) * use(missing)

    why = record(body).unsupported
    assert why is not None
    assert (why.reason, "and absent_package is not installed" in why.detail) == (UnsupportedReason.OTHER_API, True)
