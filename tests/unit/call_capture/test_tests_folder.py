from __future__ import annotations

import pytest
import torch

from ci_autotest.call_capture.mode import CallMode
from ci_autotest.call_capture.tests_folder import check_folder, write_tests
from ci_autotest.errors import UsageError

OLD = ("autotest_train.py", "autotest_train.npz", "autotest_train_in_place.py", "autotest_train_layers_12.npz")
OTHERS = (
    "autotest_train_gan.npz",
    "autotest_train_gan.py",
    "autotest_train_gan_layers.py",
    "autotest_train_layers_2_mine.py",
    "autotest_trainer.py",
    "my_autotest_train.py",
)


def test_write_tests__folder_with_tests_of_other_programs__replaces_its_own_alone(tmp_path):
    for name in (*OLD, *OTHERS):
        (tmp_path / name).write_text("# written by hand\n")
    with CallMode() as mode:
        torch.ones(2).exp()
    check_folder(tmp_path, "src/train.py", is_forced=True)
    write_tests(mode.capture(), tmp_path, "src/train.py")
    kept = [path.name for path in sorted(tmp_path.iterdir()) if path.read_text() == "# written by hand\n"]
    assert (kept, {path.name for path in tmp_path.iterdir()}) == ([*OTHERS], {"autotest_train.py", *OTHERS})


def test_check_folder__data_of_an_old_test__is_a_reason_to_refuse(tmp_path):
    (tmp_path / "autotest_train_layers.npz").touch()
    with pytest.raises(UsageError, match=r"autotest_train_layers\.npz exists"):
        check_folder(tmp_path, "src/train.py")


def test_check_folder__tests_of_other_programs__are_no_reason_to_refuse(tmp_path):
    for name in OTHERS:
        (tmp_path / name).touch()
    check_folder(tmp_path, "src/train.py")
