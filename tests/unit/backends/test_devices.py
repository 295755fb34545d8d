"""Devices of torch: proved before they are used, and told where they lack something. A real one is in end_to_end/."""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import Any

import pytest
import torch

from ci_autotest.backends.devices import attach, lacking, lacks, module_of, prove, seed, versions
from ci_autotest.errors import UnavailableError, UnsupportedReason, by_user
from ci_autotest.kinds import TorchCandidate

NPU = {"name": "it", "device": "npu"}


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (
            "nowhere_to_be_found",
            "candidate 'it': module 'nowhere_to_be_found' of device 'npu' cannot be imported: Modu",
        ),
        ("json", "candidate 'it': module 'json' was imported and registers no device 'npu', nor any other."),
    ],
)
def test_attach__module_registers_no_such_device__says_which_and_why(module: str, said: str):
    with pytest.raises(UnavailableError) as caught:
        attach(TorchCandidate(**NPU, module=module), "npu")
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("device", ["meta", "nowhere"])
def test_prove__what_cannot_be_read_back__cannot_be_used(device: str):
    with pytest.raises(UnavailableError, match=rf"candidate 'it': torch .* cannot use device '{device}' here"):
        prove(device, "candidate 'it'")


@pytest.mark.parametrize("is_copied", [False, True])
def test_prove__what_stays_on_the_host__says_which(monkeypatch: pytest.MonkeyPatch, is_copied: bool):
    """A device that leaves numbers where they are; `meta` stands for one that takes them and adds on the host."""
    to, add = torch.Tensor.to, torch.Tensor.__add__
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, device: to(tensor, device) if is_copied else tensor)
    monkeypatch.setattr(torch.Tensor, "__add__", lambda tensor, other: add(torch.ones(4), torch.ones(4)))
    subject = "the sum of two tensors on it" if is_copied else "a tensor that was moved there"
    with pytest.raises(UnavailableError, match=f"device 'meta' falls back: {subject} is on 'cpu'"):
        prove("meta", "candidate 'it'")


def test_prove__host__needs_no_proof(monkeypatch: pytest.MonkeyPatch):
    computed: list[int] = []
    monkeypatch.setattr(torch, "ones", computed.append)
    prove("cpu", "candidate 'it'")
    assert not computed


#: What a user's function may say: our words, torch's, its own.
SAID = [
    "mykernels has no kernel of exp yet", "exp is not written yet", "\"exp\" not implemented for 'Half'",
    "Could not run 'aten::exp' with arguments from the 'CPU' backend",
]  # fmt: skip


def caught(call: Any) -> BaseException:
    """Return what a call raises, with no frame of a file of this test's in its traceback."""
    space: dict[str, Any] = {"call": call}
    exec(compile("try:\n    call()\nexcept BaseException as error:\n    found = error\n", "<steps>", "exec"), space)  # noqa: S102 - a frame of no file
    found = space["found"]
    assert isinstance(found, BaseException)
    return found


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            partial(torch.exp, torch.eye(2).to_sparse()),
            "Could not run 'aten::exp' with arguments from the 'SparseCPU' backend",
        ),
        (
            partial(torch.erfinv, torch.ones(2, dtype=torch.complex64)),
            "\"erfinv_vml_cpu\" not implemented for 'ComplexFloat'",
        ),
    ],
)  # fmt: skip
def test_lacking__library_of_torch_raises__is_a_kernel_that_is_missing(call: Any, said: str):
    assert lacking(caught(call)) == (UnsupportedReason.NO_KERNEL, said)


@pytest.mark.parametrize(
    "call",
    [
        # Compiled functions of the user's: one that raises, and one that gives an error with these words.
        partial(by_user, dt.tzinfo().utcoffset, None),
        partial(by_user, torch.exp, torch.eye(2).to_sparse()),
        # torch's own Python: no kernel says this.
        torch.nn.Module(),
    ],
)
def test_lacking__compiled_function_of_the_users_or_python_raises__is_not_implemented(call: Any):
    found = lacking(caught(call))
    assert found is not None
    assert found.reason is UnsupportedReason.NOT_IMPLEMENTED


@pytest.mark.parametrize("text", SAID)
def test_lacking__users_function_says_so__is_not_implemented_in_whatever_words(text: str):
    def kernel() -> None:
        raise NotImplementedError(text)

    with pytest.raises(NotImplementedError) as caught:
        kernel()
    found = lacking(caught.value)
    assert found is not None
    assert found.reason is UnsupportedReason.NOT_IMPLEMENTED


@pytest.mark.parametrize("text", SAID)
def test_lacking__another_error__lacks_nothing_in_whatever_words(text: str):
    assert lacking(RuntimeError(text)) is None


@pytest.mark.parametrize("operator", ["torch.exp", "torch.nn.functional.softmax", "torch.nn.functional.layer_norm"])
def test_lacks__operator_has_a_kernel_on_the_host_alone__is_named_on_another_device(operator: str):
    assert lacks(operator, "cpu") == ""
    assert lacks(operator, "xla").startswith("device 'xla' has no kernel of aten::")


@pytest.mark.parametrize("operator", ["torch.outer", "torch.nn.functional.relu6"])
def test_lacks__operator_without_a_kernel_of_its_own__counts_as_there(operator: str):
    assert lacks(operator, "xla") == ""


class Device:
    """Stand in for what a package registers beside its device."""

    def __init__(self) -> None:
        self.seeds: list[int] = []

    def manual_seed_all(self, number: int) -> None:
        self.seeds.append(number)


def test_seed__device_has_generators__sets_them(monkeypatch: pytest.MonkeyPatch):
    device = Device()
    monkeypatch.setattr(torch, "hpu", device, raising=False)
    seed(torch.device("hpu"), 7)
    seed(torch.device("cpu"), 8)
    assert device.seeds == [7]


def test_module_of__kinds_of_devices__is_what_torch_keeps():
    assert module_of("cuda") is torch.cuda
    assert module_of("cpu") is None


def test_versions__imported_module__is_told_by_name():
    assert versions("torch") == {"torch": str(torch.__version__)}
    assert versions("nowhere_to_be_found") == {}
