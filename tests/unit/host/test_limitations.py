"""Limitations count in the framework's own words from its own code; the same words from other code decide nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from ci_autotest.host.frameworks import mindspore, oneflow, oneflow_global, paddle, torch_like
from ci_autotest.host.frameworks.limitations import Limitation, reported_limitation
from ci_autotest.host.frameworks.protocol import LackingError
from ci_autotest.host.frameworks.torch_like import TorchLike

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(np.__file__).resolve().parent
#: What frameworks really said (OneFlow 0.9.0, Paddle 3.3.1, MindSpore 2.10, torch 1.12), by their tables.
SAID: dict[str, tuple[tuple[Limitation, ...], tuple[tuple[type[Exception], str], ...]]] = {
    "oneflow": (oneflow._LIMITATIONS, (
        (RuntimeError, "Cannot find the kernel matching Current OperatorConf.  The Info of OperatorConf are \n op_name: relu2"),
        (RuntimeError, "The gradient function for op index_add is not found. Please check whether"),
        (TypeError, "Error: reduce_sum(): received an invalid combination of arguments. The valid signatures are:"),
        (TypeError, "grad() got an unexpected keyword argument 'allow_unused'"),
        (TypeError, "Error: exp(): got an unexpected keyword argument 'out'"),
    )),
    "oneflow on ranks": (oneflow_global._REFUSALS, (
        (RuntimeError, "relu6 has no maching sbp after flitering valid sbp list sbp_signature {"),
        (RuntimeError, "repeat_interleave only support local tensor now"),
        (RuntimeError, "Tensor.pin_memory() only support local tensor for now!"),
        (RuntimeError, "pack_padded_sequence only accept local tensors as input."),
        (RuntimeError, "tensor.to(other) can only be called when tensor and other are local tensors"),
        (RuntimeError, "Global tensor has no is_pinned method"),
        (RuntimeError, "Only local tensors have 'device'. Please use '.placement' for global tensors."),
    )),
    "paddle": (paddle._LIMITATIONS, (
        (RuntimeError, "(NotFound) The kernel with key (CPU, Undefined(AnyLayout), float16) of kernel `relu` is not registered."),
        (ValueError, "(InvalidArgument) The received values data type int8 can not meet input requirements. Because the given "
         "values data type of searchsorted operators must be bfloat16"),
        (TypeError, "Elements in Input(x) should all be integers"),
    )),
    "mindspore": (mindspore._LIMITATIONS, (
        (RuntimeError, "The kernel Roll unregistered.\n\n------"),
        (RuntimeError, "\n-----\n- Kernel select failed:\n-----\nUnsupported op [InplaceScatterAdd] on CPU, Please confirm"),
        (TypeError, "For primitive[LogAddExp], the input argument [input] must be a type of {Float16, Float32}, but got Float64."),
        (TypeError, "Select CPU operator[Expm1] fail! Unsupported data type!\nThe supported data types are input[Float16]"),
        (ValueError, "For Primitive [MatrixInverseExt], type should be float32"),
        (TypeError, "For 'diff', 'input' do not support complex64/complex128/float64/int16"),
    )),
    "torch": (torch_like._LIMITATIONS, (
        (RuntimeError, "\"exp_cpu\" not implemented for 'Half'"),
        (RuntimeError, "\"exp\" \"_vml_cpu\" not implemented for 'Half'"),
        (TypeError, "softmax() received an invalid combination of arguments - got (Tensor)"),
        (TypeError, "gelu() got an unexpected keyword argument 'approximate'"),
    )),
}  # fmt: skip
EVERY = [(name, kind, text) for name, (_, rows) in SAID.items() for kind, text in rows]


def raised(kind: type[Exception], text: str, file: str) -> Exception:
    """Return an error that Python raised in a file."""
    space: dict[str, Any] = {"error": kind(text)}
    source = "try:\n    raise error\nexcept Exception as caught:\n    found = caught\n"
    exec(compile(source, file, "exec"), space)  # noqa: S102 - a frame of that file
    found = space["found"]
    assert isinstance(found, kind)
    return found


@pytest.mark.parametrize(("name", "kind", "text"), EVERY)
def test_reported_limitation__framework_says_it_itself__is_lacking(name: str, kind: type[Exception], text: str):
    found = reported_limitation(raised(kind, text, str(FOLDER / "ops.py")), text, SAID[name][0], FOLDER)
    assert text.startswith(found)
    assert found


@pytest.mark.parametrize(
    ("file", "folder"), [("/home/user/mykernels.py", FOLDER), ("/home/user/mykernels.py", None), ("<stdin>", FOLDER)]
)
def test_reported_limitation__anybody_else_says_it__decides_nothing(file: str, folder: Path):
    found = {each: reported_limitation(raised(*each[1:], file), each[2], SAID[each[0]][0], folder) for each in EVERY}
    assert found == dict.fromkeys(EVERY, "")


@pytest.mark.parametrize(
    "quoting", ["mode '{}' is not one of ('nearest',)", "{!r}", "einsum: {}", "got an argument: {}\n"]
)
def test_reported_limitation__framework_quotes_it__decides_nothing(quoting: str):
    found = {}
    for name, kind, text in EVERY:
        quoted = quoting.format(text)
        error = raised(kind, quoted, str(FOLDER / "ops.py"))
        found[name, text] = reported_limitation(error, quoted, SAID[name][0], FOLDER)
    assert found == dict.fromkeys(found, "")


@pytest.mark.parametrize(("name", "kind", "text"), EVERY)
def test_reported_limitation__error_of_another_class__decides_nothing(name: str, kind: type[Exception], text: str):
    error = raised(KeyError, text, str(FOLDER / "ops.py"))
    table = [row for row in SAID[name][0] if row.kind is not Exception]
    assert reported_limitation(error, text, table, FOLDER) == ""


def caught(call: Callable[[], object]) -> BaseException:
    with pytest.raises((RuntimeError, TypeError)) as found:
        call()
    return found.value


WORDS = "not implemented for 'Half', got an unexpected keyword argument, not yet implemented"


def test_lacking__compiled_code_of_torch_quotes_an_argument__is_an_error():
    error = caught(lambda: torch.ones(2).to(WORDS))
    assert WORDS in str(error)
    assert TorchLike("torch", "cpu").lacking(error) == ""


def test_lacking__module_of_the_users_says_it__is_an_error():
    def kernel() -> None:
        message = "\"exp\" not implemented for 'Half'"
        raise RuntimeError(message)

    assert TorchLike("torch", "cpu").lacking(caught(kernel)) == ""


def test_lacking__call_that_has_no_such_argument__is_lacking():
    error = caught(lambda: torch.nn.functional.softmax(torch.ones(2), dimension=0))  # type: ignore[call-arg]
    assert TorchLike("torch", "cpu").lacking(error) == "softmax() got an unexpected keyword argument 'dimension'"


@pytest.mark.filterwarnings("ignore")  # torch deprecates quantised tensors
def test_array__of_a_quantised_tensor__is_what_numpy_lacks():
    quantised = torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.quint8)
    with pytest.raises(LackingError, match="elements of quint8 that NumPy can hold"):
        TorchLike("torch", "cpu").array(quantised)


def test_gradients__after_a_pass_of_the_bodys_own__are_of_this_pass():
    x = torch.ones(3, requires_grad=True)
    x.sum().backward()
    # torch stands for OneFlow, whose functions have the same names.
    found = oneflow.OneFlow("torch", "cpu").gradients([x * 2], [torch.ones(3)], [x])
    assert [gradient.tolist() for gradient in found] == [[2.0, 2.0, 2.0]]
