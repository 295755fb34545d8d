"""The targets that a saved program may name. Programs come from outside: no other name is resolved, printed or run.

Only the name is checked here, without a framework. A backend also checks that the name resolves to an operator.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ci_autotest.program.ir import ARRAY, CALL_FUNCTION, CALL_METHOD, EXPECT, HOOKED, LOAD, PACKED, SAVE, UNHOOKED, Step
from ci_autotest.program.python_names import is_path, is_pythons
from ci_autotest.program.roles import OPERATORS, VIEW_ATTRIBUTES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_NAMESPACES: Final = (
    "torch",
    "torch.Tensor",
    "torch.nn",
    "torch.nn.functional",
    "torch.linalg",
    "torch.fft",
    "torch.special",
    "torch._C._nn",
    "torch.nn.utils.rnn",
    "torch.nn.init",
)
#: The functions with which torch packs and pads sequences.
PACKING: Final = ("torch._VF._pack_padded_sequence", "torch._VF._pad_packed_sequence")
#: Functions outside of those namespaces.
_FUNCTIONS: Final = frozenset({
    "torch.autograd.grad", "torch.autograd.backward", HOOKED, UNHOOKED, EXPECT, SAVE, LOAD, *PACKING,
})  # fmt: skip
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PYTHON: Final = frozenset({
    *(f"operator.{name}" for name in OPERATORS),
    *(f"builtins.{name}" for name in ("getattr", "setattr", "len", "bool", "int", "float", "tuple.__getitem__")),
})  # fmt: skip
#: Names under ``torch`` that access files, the network, other code or the whole process.
_REFUSED: Final = re.compile(
    r"load|save|compile|hub|from_file|import_ir_module.*|parse_.*|set_.*|.*_from_file|frombuffer|fork|wait|classes|ops|"
    r"_.*|share_memory_|data_ptr|apply_|map_|map2_|tofile|storage|untyped_storage|register_.*|export|jit|package|"
    r"load_state_dict_from_url|Module|Parallel.*|DataParallel|numpy|__reduce.*|__setstate__|__class__|__dict__"
)
#: Functions of ``torch`` itself that change or report the state of the process. Tensor methods of these names are
#: allowed.
_OF_THE_PROCESS: Final = re.compile(
    r"use_.*|.*manual_seed.*|seed|initial_seed|prepare_.*|get_.*|are_.*|is_warn.*|profiler.*|thread_safe_generator|init_.*"
)
# Names with an underscore in front are refused below; these few are allowed.
_SPECIAL_METHODS: Final = frozenset({
    "__getitem__", "__setitem__", "__rsub__", "__radd__", "__rmul__", "__rpow__", "__rtruediv__", "__rmatmul__",
    "__rfloordiv__", "__rmod__", "__len__", "__contains__",
})  # fmt: skip
#: Attributes of a tensor whose reads are steps: tensors, and the version, which is compared only where a body reads it.
STEP_ATTRIBUTES: Final = VIEW_ATTRIBUTES | {"grad", "data", "_version"}
#: Attributes that depend on where a tensor lies or on what computed it, so that two sides need not agree on them.
SIDE_ATTRIBUTES: Final = frozenset({
    "device", "is_cpu", "is_cuda", "is_ipu", "is_maia", "is_meta", "is_mkldnn", "is_mps", "is_mtia", "is_vulkan",
    "is_xla", "is_xpu", "name", "output_nr", "volatile",
})  # fmt: skip
#: Attributes that a ``getattr`` step may read: those of tensors in PyTorch 2.13, and parameters and buffers of modules.
ATTRIBUTES: Final = STEP_ATTRIBUTES | SIDE_ATTRIBUTES | {
    "dtype", "grad_dtype", "is_leaf", "is_nested", "is_quantized", "is_sparse", "is_sparse_csr", "itemsize",
    "layout", "nbytes", "ndim", "requires_grad", "retains_grad", "shape",
    "bias", "num_batches_tracked", "running_mean", "running_var", "weight",
}  # fmt: skip


def is_function(target: str) -> bool:
    """Whether a ``call_function`` step may name the target."""
    if target in _FUNCTIONS or target in _PYTHON:
        return True
    namespace, _, name = target.rpartition(".")
    if namespace == "torch" and _OF_THE_PROCESS.fullmatch(name):
        return False
    return namespace in _NAMESPACES and is_member(name)


#: What an operator that C++ registers with torch starts with.
OPS: Final = "torch.ops."
#: What an overload of PyTorch's dispatcher starts with; its name may be private, or one of Python's: ``__and__``.
DISPATCHER: Final = f"{OPS}aten."
_OF_DISPATCHER: Final = re.compile(r"_{0,2}[A-Za-z][A-Za-z0-9_]{0,95}\.[A-Za-z_][A-Za-z0-9_]{0,63}")
#: The source of tests of these overloads.
OVERLOADS: Final = "builtin:overloads"
#: Entries of the dispatcher that access files, or replace the memory of a tensor.
_REFUSED_OVERLOADS: Final = re.compile(r"_?from_file|set_?|set_data")
#: Entries that access memory without a check, or do not compute: a program from outside names none of them.
_UNCHECKED_OVERLOADS: Final = re.compile(r"_reshape_alias(_copy)?|.*unsafe.*|_resize_output_?|save|load|wait|warn")
#: First parts of targets that have a meaning of their own.
_ROOTS: Final = frozenset({"torch", "operator", "builtins", "adapters"})
#: Longest path of a user's operator.
_PATH_CHARS: Final = 200
#: Parts of ``torch.ops.namespace.name``; an overload may follow.
_OPS_PARTS: Final = 4


def last_name(target: str) -> str:
    """Return the name of a function, method or class without its module; overloads share their entry's."""
    parts = target.split(".")
    return parts[3] if target.startswith(OPS) and len(parts) >= _OPS_PARTS else parts[-1]


def is_own(target: str) -> bool:
    """Whether a target can be an operator of the user's: the path of a function or class, or an entry of torch.ops."""
    if is_overload(target):
        return True
    parts = target.split(".")
    if len(target) > _PATH_CHARS or not is_path(target) or any(part.startswith("__") for part in parts):
        return False
    if target.startswith(OPS):
        return len(parts) in {_OPS_PARTS, _OPS_PARTS + 1} and is_member(parts[3])
    return parts[0] not in _ROOTS and not is_pythons(parts[0])


def is_path_of_own(target: str) -> bool:
    """Whether a target can be the path of a function or class of the user's; an entry of torch.ops is none."""
    return is_own(target) and not target.startswith(OPS)


def is_overload(target: str) -> bool:
    """Whether a target can be an overload of PyTorch's dispatcher, such as ``torch.ops.aten.add.out``."""
    name = target.removeprefix(DISPATCHER)
    if name == target or not _OF_DISPATCHER.fullmatch(name):
        return False
    return not _REFUSED_OVERLOADS.fullmatch(name.partition(".")[0])


def makes_module(step: Step) -> bool:
    """Whether a step of the setup constructs a module: it calls a class of ``torch.nn``, or one of the user's."""
    is_of_torch = step.target.startswith("torch.nn.") and last_name(step.target)[:1].isupper() and step.target != PACKED
    return step.in_setup and step.op == CALL_FUNCTION and (is_of_torch or is_own(step.target))


def is_module(step: Step) -> bool:
    """Whether the value of a step of the setup is a module: it constructs one, or takes a part of one."""
    return makes_module(step) or (step.in_setup and step.op == CALL_METHOD and step.target == "get_submodule")


def own_operator(target: str) -> str:
    """Return the operator of a user's target: all overloads of an entry of torch.ops are one."""
    return ".".join(target.split(".")[:_OPS_PARTS]) if target.startswith(OPS) else target


def permits_none(_: str) -> bool:
    """Return false: a program may name no operator of a user's."""
    return False


def named_in(names: Collection[str]) -> Callable[[str], bool]:
    """Return whether a program from outside may name a user's operator: its path, or its module, is among ``names``.

    All overloads of PyTorch's dispatcher are named by ``torch.ops.aten``.
    """

    def is_named(target: str) -> bool:
        if is_overload(target) and _UNCHECKED_OVERLOADS.fullmatch(target.removeprefix(DISPATCHER).partition(".")[0]):
            return False
        return is_own(target) and not _owners(target).isdisjoint(names)

    return is_named


def _owners(target: str) -> set[str]:
    namespace = {DISPATCHER[:-1]} if is_overload(target) else set[str]()
    return {own_operator(target), target.rpartition(".")[0], *namespace}


def is_member(name: str) -> bool:
    """Whether a function or method of this last name may be called."""
    if name in _SPECIAL_METHODS or name in {"load_state_dict", "set_default"}:
        return name != "set_default"
    return bool(_NAME.fullmatch(name)) and not _REFUSED.fullmatch(name)


def is_method(name: str) -> bool:
    """Whether a ``call_method`` step may name the method."""
    return name == ARRAY or is_member(name)


def is_settable(name: str) -> bool:
    """Whether an attribute of this name may be set on a tensor or a module."""
    # Another `forward` would replace what a call of the module runs.
    return is_member(name) and name != "forward"


def is_attribute(name: str) -> bool:
    """Whether an attribute of this name may be read from a tensor or a module."""
    # Recurrent and attention modules have parameters such as `weight_ih_l0` and `in_proj_weight`.
    return name in ATTRIBUTES or (bool(_NAME.fullmatch(name)) and name.startswith(("weight_", "bias_", "in_proj")))
