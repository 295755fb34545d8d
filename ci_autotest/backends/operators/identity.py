"""Map every spelling of an operator to one canonical name, by which tolerances, findings and replacements go.

For example ``torch.softmax``, ``x.softmax``, ``torch.nn.functional.softmax`` and the call inside ``torch.nn.Softmax``
are one operator. The canonical name is ``torch.nn.functional.X`` if PyTorch documents the operator there, else
``torch.X``, else ``torch.special.X``, else ``torch.Tensor.X``. A trailing underscore and Python's operators are other
spellings of the same operator. The names that a user writes are checked, too.
"""

from __future__ import annotations

import difflib
import re
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.overrides import resolve_name

from ci_autotest.backends.operators.signatures import resolved
from ci_autotest.errors import ConfigError
from ci_autotest.program.backward_passes import PASSES
from ci_autotest.program.edit import follows_from, reached
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    GET_ATTR,
    UNHOOKED,
    UNPACK,
    Step,
)
from ci_autotest.program.targets import DISPATCHER, OPS, is_module, is_own, last_name, own_operator
from ci_autotest.values.operator_aliases import ALIASES, names_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


#: Python's operators by the name that the ``operator`` module and the special methods share.
PYTHON_OPERATORS: Final[dict[str, str]] = {
    "add": "torch.add", "sub": "torch.sub", "mul": "torch.mul", "truediv": "torch.div",
    "floordiv": "torch.floor_divide", "mod": "torch.remainder", "pow": "torch.pow", "matmul": "torch.matmul",
    "neg": "torch.neg", "pos": "torch.positive", "abs": "torch.abs", "invert": "torch.bitwise_not",
    "and_": "torch.bitwise_and", "or_": "torch.bitwise_or", "xor": "torch.bitwise_xor",
    "lshift": "torch.bitwise_left_shift", "rshift": "torch.bitwise_right_shift",
    "lt": "torch.lt", "le": "torch.le", "gt": "torch.gt", "ge": "torch.ge", "eq": "torch.eq", "ne": "torch.ne",
    "getitem": "torch.Tensor.__getitem__", "setitem": "torch.Tensor.__setitem__",
}  # fmt: skip
_INPLACE_PYTHON: Final = {f"i{name.rstrip('_')}": name for name in PYTHON_OPERATORS}
_SPECIAL: Final = {
    "rsub": "torch.sub",
    "rdiv": "torch.div",
    "rtruediv": "torch.div",
    "rpow": "torch.pow",
}

#: Methods that do something else than the function of the same name.
_METHODS: Final = MappingProxyType({"unfold": "torch.Tensor.unfold"})

#: Module classes whose function is not the class's name in snake case. A test checks the others against what their
#: ``forward`` calls.
_MODULE_FUNCTIONS: Final[dict[str, str]] = {
    "BatchNorm1d": "batch_norm", "BatchNorm2d": "batch_norm", "BatchNorm3d": "batch_norm",
    "InstanceNorm1d": "instance_norm", "InstanceNorm2d": "instance_norm", "InstanceNorm3d": "instance_norm",
    "CrossEntropyLoss": "cross_entropy", "MSELoss": "mse_loss", "L1Loss": "l1_loss", "NLLLoss": "nll_loss",
    "KLDivLoss": "kl_div", "BCELoss": "binary_cross_entropy", "SmoothL1Loss": "smooth_l1_loss",
    "BCEWithLogitsLoss": "binary_cross_entropy_with_logits", "HuberLoss": "huber_loss", "GELU": "gelu", "ELU": "elu",
    "SELU": "selu", "CELU": "celu", "GLU": "glu", "SiLU": "silu", "ReLU": "relu", "PReLU": "prelu",
    "RReLU": "rrelu", "LeakyReLU": "leaky_relu", "LogSigmoid": "logsigmoid", "RMSNorm": "rms_norm",
    "Upsample": "interpolate", "Embedding": "embedding", "MultiheadAttention": "multi_head_attention_forward",
    "Flatten": "torch.flatten", "Unflatten": "torch.unflatten", "LSTM": "torch.lstm", "GRU": "torch.gru",
    "ReLU6": "hardtanh", "RNN": "torch.rnn_tanh", "MultiLabelSoftMarginLoss": "multilabel_soft_margin_loss",
    "MultiLabelMarginLoss": "multilabel_margin_loss", "Softmax2d": "softmax",
    "CosineSimilarity": "cosine_similarity", "PairwiseDistance": "pairwise_distance",
}  # fmt: skip

#: Prefixes of entries of the dispatcher whose functions are in a namespace of their own.
_PREFIXES: Final = ("linalg", "fft", "special")

#: Calls that compute nothing themselves, so a wrong value after one of them comes from another step.
_BOOKKEEPING: Final = frozenset({
    *PASSES, "register_hook", UNHOOKED, "retain_grad", "requires_grad_", "item", "tolist",
})  # fmt: skip


@lru_cache(maxsize=4096)
def public_name(func: Callable[..., Any]) -> str | None:
    """Return the dotted name of a function that torch passes to ``__torch_function__``; ``None`` if it has none."""
    if isinstance(func, torch._ops.OpOverloadPacket | torch._ops.OpOverload):
        return f"{OPS}{func}"
    name = resolve_name(func)
    # Torch has one function under both names, and `resolve_name` returns the one that nobody writes.
    return "torch.mm" if name == "torch.spmm" else name


def operator_of(target: str, op: str = CALL_FUNCTION) -> str:
    """Return the canonical operator of a target, as a step of opcode ``op`` spells it."""
    if op == CALL_METHOD:
        return _METHODS.get(target) or _canonical(target)
    if op == GET_ATTR:
        return f"torch.Tensor.{target}"
    if op == CALL_MODULE:
        return _module_operator(target)
    namespace, _, name = target.rpartition(".")
    if namespace == "operator":
        return PYTHON_OPERATORS.get(name) or PYTHON_OPERATORS.get(_INPLACE_PYTHON.get(name, ""), target)
    if target in _METHODS.values():
        return target
    if (alias := ALIASES.get(target.removeprefix("torch."))) and target.startswith("torch."):
        return _canonical(alias)
    if namespace in {
        "torch",
        "torch.functional",
        "torch.Tensor",
        "torch.nn.functional",
        "torch.special",
        "torch._C._nn",
    }:
        return _canonical(name)
    return own_operator(target)


def step_operator(step: Step, steps: Sequence[Step] = ()) -> str:
    """Return the operator of a step; a ``getattr`` step is named after the attribute that it reads."""
    if step.target in {"builtins.getattr", "builtins.setattr"} and isinstance(step.args[1], str):
        return f"torch.Tensor.{step.args[1]}"
    maker = steps[step.receiver] if steps and step.receiver is not None else None
    if step.target == UNPACK and maker is not None:
        return step_operator(maker, steps)
    if step.op == CALL_METHOD and maker is not None and is_module(maker):
        return f"torch.nn.Module.{step.target}"
    return operator_of(step.target, step.op)


def answers(step: Step, steps: Sequence[Step], calls: Mapping[str, int]) -> bool:
    """Whether the candidate computes a step itself, so that a wrong result can be its fault.

    Args:
        step: The step.
        steps: All steps of the program.
        calls: For each operator that was called, how often a function of the user's was called in its place. Empty for
            a candidate that computes every operator.
    """
    if not step.is_call or step.op == GET_ATTR or step.in_setup or step.target.startswith("builtins."):
        return False
    # A module's operator does not tell which operators its `forward` calls; one of them may be replaced.
    return step.target not in _BOOKKEEPING and calls.get(step_operator(step, steps), 1) > 0


def answered_step(steps: Sequence[Step], index: int, calls: Mapping[str, int], *, has_backward: bool = False) -> int:
    """Return the nearest step that the candidate computes and that a wrong step depends on; the step itself if it does.

    Args:
        steps: All steps of the program.
        index: Index of the wrong step.
        calls: As in ``answers``.
        has_backward: Whether a gradient is wrong. A gradient depends on the steps that use the value, not on those
            before it.
    """
    found = [i for i, step in enumerate(steps) if answers(step, steps, calls)]
    if index in found or not found:
        return index
    before, after = follows_from(steps, index), reached(steps, {index})
    nearest = [max((i for i in found if i in before), default=-1), min((i for i in found if i in after), default=-1)]
    if has_backward:
        nearest.reverse()
    # `x.grad` depends on a backward pass, and no `Ref` of the step says which; the last step before it is a guess.
    return next((i for i in nearest if i >= 0), max((i for i in found if i < index), default=found[-1]))


def spelled(step: Step) -> str:
    """Return a step's target as a reader would look it up: a method's name gets ``torch.Tensor`` in front."""
    return step.target if "." in step.target else f"torch.Tensor.{step.target}"


def spellings(operator: str) -> tuple[str, ...]:
    """Return the names under which a user may write an operator."""
    own = set(_METHODS.values())
    if operator in own or is_own(operator):
        return (operator,)
    return tuple(name for name in names_of(operator) if name not in own)


def matches(pattern: str, operator: str) -> bool:
    """Whether a pattern of the configuration names the operator; any spelling and ``*`` are allowed."""
    if fnmatchcase(operator, pattern) or operator_of(pattern) == operator:
        return True
    return operator_of(operator) == operator and any(fnmatchcase(name, pattern) for name in spellings(operator))


def public_operator(operator: str) -> str:
    """Return the public operator that an entry of PyTorch's dispatcher computes, or the operator itself.

    What is defined of the results of ``torch.linalg.svd`` is so of those of ``torch.ops.aten._linalg_svd``.
    """
    if not operator.startswith(DISPATCHER):
        return operator
    name = last_name(operator).strip("_")
    for prefix in _PREFIXES:
        if name.startswith(f"{prefix}_"):
            return operator_of(f"torch.{prefix}.{name.removeprefix(f'{prefix}_')}")
    return _canonical(name)


@lru_cache(maxsize=4096)
def _canonical(name: str) -> str:
    bare = name.strip("_") if name.startswith("__") else name
    if name.startswith("__"):
        special = _SPECIAL.get(bare) or PYTHON_OPERATORS.get(bare) or PYTHON_OPERATORS.get(f"{bare}_")
        if special is None and bare[:1] in {"r", "i"}:
            special = PYTHON_OPERATORS.get(bare[1:]) or PYTHON_OPERATORS.get(f"{bare[1:]}_")
        return special or f"torch.Tensor.{name}"
    bare = ALIASES.get(bare.rstrip("_"), bare)
    if "." in bare:
        return f"torch.{bare}"
    for candidate in dict.fromkeys((bare.rstrip("_"), bare)):
        if _is_documented_functional(candidate):
            return f"torch.nn.functional.{candidate}"
        if callable(getattr(torch, candidate, None)):
            return f"torch.{candidate}"
        if callable(getattr(torch.special, candidate, None)):
            return f"torch.special.{candidate}"
    stripped = bare.rstrip("_")
    return f"torch.Tensor.{stripped if hasattr(torch.Tensor, stripped) else bare}"


def _is_documented_functional(name: str) -> bool:
    # Both namespaces have `tanh` and `sigmoid`; PyTorch deprecated the functional ones.
    return name not in {"tanh", "sigmoid"} and callable(getattr(torch.nn.functional, name, None))


def _module_operator(target: str) -> str:
    if is_own(target):
        return target
    name = last_name(target)
    function = _MODULE_FUNCTIONS.get(name) or ("pad" if re.fullmatch(r"\w+Pad[123]d", name) else _snake_case(name))
    if function.startswith("torch."):
        return function
    canonical = _canonical(function)
    return canonical if not canonical.startswith("torch.Tensor.") else target


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


# Check the operator names that a user writes: refuse a name that torch lacks, and suggest the nearest one.


_SPACES: Final = {
    "torch": torch, "torch.nn.functional": torch.nn.functional, "torch.Tensor": torch.Tensor,
    "torch.linalg": torch.linalg, "torch.fft": torch.fft, "torch.special": torch.special,
}  # fmt: skip


def refuse_unknown(operator: str, location: str) -> None:
    """Refuse the name of an operator that torch lacks.

    Args:
        operator: As the user wrote it, for example ``torch.nn.functional.softmax``.
        location: Place of the name, for the message.

    Raises:
        ConfigError: Torch has no operator of that name.
    """
    name = operator.rpartition(".")[2]
    if operator.startswith("torch.") and name[:1].islower() and _has(operator):
        return
    known = [f"{label}.{key}" for label, space in _SPACES.items() for key in vars(space)]
    _refuse(operator, location, known, "Write it as torch.nn.functional.softmax.")


def refuse_unknown_rows(operators: Iterable[str], key: str) -> None:
    """Refuse a row with a name that torch lacks; patterns and operators from elsewhere pass.

    Args:
        operators: The operator of each row of ``tolerances`` or ``known``.
        key: The key that the rows stand under, for the message.

    Raises:
        ConfigError: Torch has neither an operator nor a module of that name.
    """
    for number, operator in enumerate(operators):
        is_in_torch = operator.startswith("torch.") and not operator.startswith("torch.ops.")
        if is_in_torch and "*" not in operator and not _has(operator) and not _is_module_name(operator):
            known = [f"{label}.{key}" for label, space in _SPACES.items() for key in vars(space)]
            known += [f"torch.nn.{key}" for key in vars(torch.nn)]
            _refuse(operator, f"{key}[{number}]", known, "Correct its spelling, or write a pattern with *.")


def _has(operator: str) -> bool:
    # The last part of the name decides, because `torch.relu` and `torch.nn.functional.relu` are one operator.
    if any(hasattr(space, operator.rpartition(".")[2]) for space in _SPACES.values()):
        return True
    return callable(resolved(operator))


def _is_module_name(operator: str) -> bool:
    return hasattr(torch.nn, operator.rpartition(".")[2])


def _refuse(operator: str, location: str, known: list[str], otherwise: str) -> None:
    nearest = difflib.get_close_matches(operator, known, 1, 0.6)
    hint = f"Did you mean {nearest[0]!r}?" if nearest else otherwise
    message = f"{location}: torch has no operator {operator!r}. {hint}"
    raise ConfigError(message)
