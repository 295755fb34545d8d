"""Names of operators that a user writes: what torch does not have is refused with the nearest that it has."""

from __future__ import annotations

import pytest

from ci_autotest.backends.operators.identity import refuse_unknown, refuse_unknown_rows
from ci_autotest.backends.registry import build
from ci_autotest.errors import ConfigError
from ci_autotest.kinds import SubstituteCandidate


@pytest.mark.parametrize(
    "name",
    ["torch.tanh", "torch.nn.functional.softmax", "torch.Tensor.add_", "torch.linalg.qr", "torch.sparse.sampled_addmm"],
)
def test_refuse_unknown__torch_has_it__passes__and_a_letter_more_does_not(name: str):
    refuse_unknown(name, "here")
    with pytest.raises(ConfigError, match="here: torch has no operator"):
        refuse_unknown(f"{name}x", "here")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torch.sofmax", "here: torch has no operator 'torch.sofmax'. Did you mean 'torch.softmax'?"),
        ("tanh", "here: torch has no operator 'tanh'. Write it as torch.nn.functional.softmax."),
        ("torch.nn.Softmax", "here: torch has no operator 'torch.nn.Softmax'. Did you mean "),
        ("torch.Tensor", "here: torch has no operator 'torch.Tensor'. Did you mean "),
    ],
)
def test_refuse_unknown__torch_has_none__tells_the_nearest(name: str, message: str):
    with pytest.raises(ConfigError) as caught:
        refuse_unknown(name, "here")
    assert str(caught.value).startswith(message)


def test_refuse_unknown_rows__operators_modules_patterns_and_what_is_not_torchs__pass():
    names = [
        "torch.tanh",
        "torch.nn.LayerNorm",
        "torch.nn.functional.*_norm",
        "torch.ops.mine.op",
        "torch.sparse.sampled_addmm",
        "torch.signal.windows.hann",
        "mine.op",
        "tanh",
        "*",
    ]
    refuse_unknown_rows(names, "known")
    with pytest.raises(ConfigError, match=r"^known\[9\]: torch has no operator 'torch.tanhh'"):
        refuse_unknown_rows([*names, "torch.tanhh"], "known")


def test_refuse_unknown_rows__torch_has_none__names_the_row_and_the_nearest():
    with pytest.raises(ConfigError) as caught:
        refuse_unknown_rows(["torch.tanh", "torch.nn.LayerNrom"], "tolerances")
    assert str(caught.value) == (
        "tolerances[1]: torch has no operator 'torch.nn.LayerNrom'. Did you mean 'torch.nn.LayerNorm'?"
    )


def test_build__replacement_of_an_operator_that_torch_does_not_have__names_the_candidate():
    candidate = SubstituteCandidate(name="kernels", replace={"torch.sofmax": "math.exp"})
    with pytest.raises(ConfigError) as caught:
        build(candidate, "cpu")
    assert str(caught.value).startswith("candidate 'kernels': replace: torch has no operator 'torch.sofmax'.")
