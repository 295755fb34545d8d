"""What an editor offers for the two names that every test begins with."""

from __future__ import annotations

import torch as plain

import ci_autotest


def test_dir__of_the_package__lists_the_author_s_names():
    assert dir(ci_autotest) == sorted(ci_autotest.__all__)


def test_dir__of_torch__lists_what_torch_has():
    assert dir(ci_autotest.torch) == dir(plain)
    assert dir(ci_autotest.torch.nn.functional) == dir(plain.nn.functional)
