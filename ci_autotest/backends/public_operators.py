"""The public operators of torch, which coverage is counted against.

The rule, applied to the installed torch: every function that PyTorch lists as taking tensors
(``torch.overrides.get_overridable_functions``), by its canonical name, if it has a docstring, is not an alias, and
returns a tensor. Left out are accessors of memory, devices, sparse and quantized formats, functions made for compilers,
and in-place forms, which are other spellings. Added are indexing, functions that create tensors, the recurrent layers,
which PyTorch documents as modules, and the two comparisons of whole tensors.

The result for torch 2.13, by family, ships in ``report/operators.json``, so that a report can be made without torch. A
test compares the file with the rule.
"""

from __future__ import annotations

import re
import warnings
from typing import Final

import torch

from ci_autotest.backends.operators.identity import operator_of
from ci_autotest.backends.operators.signatures import resolved, schemas

_LEFT_OUT: Final = re.compile(
    r"(?<!index)_copy$|_with_indices$|quantize|fake_quant|^q_|^int_repr$|sparse|mkldnn|^sym_|^unsafe_|^hspmm$|^smm$|^sspaddmm$|^coalesce$|"
    r"^(?:c|crow|ccol|row)?_?(?:col_)?indices$|^values$|^(?:autocast|cpu|cuda|pin_memory|to_dense|hash_tensor|index)$|"
    r"^native_|^miopen_|^fbgemm_|^batch_norm_|^resolve_(?:conj|neg)$"
)
_ALIAS: Final = re.compile(r"\b[Aa]lias (?:for|of)\s+:\w+:`~?([\w.]+)`")
#: Only the beginning of a docstring says that a function is an alias; further on, it may say so of an argument.
_FIRST_CHARS: Final = 200
_MADE: Final = (
    "arange", "bartlett_window", "blackman_window", "empty", "eye", "full", "hamming_window", "hann_window",
    "kaiser_window", "linspace", "logspace", "normal", "ones", "rand", "randint", "randn", "randn_like", "randperm",
    "tensor", "tril_indices", "triu_indices", "zeros",
)  # fmt: skip
_LAYERS: Final = (
    "gru", "gru_cell", "lstm", "lstm_cell", "rnn_relu", "rnn_relu_cell", "rnn_tanh", "rnn_tanh_cell",
)  # fmt: skip
_ADDED: Final = (
    "torch.Tensor.__getitem__", "torch.Tensor.__setitem__", "torch.allclose", "torch.equal",
    "torch.nn.functional.hardsigmoid", "torch.nn.functional.hardswish",
    *(f"torch.{name}" for name in (*_MADE, *_LAYERS)),
)  # fmt: skip


def public_operators() -> frozenset[str]:
    """Return the canonical names of torch's public operators, by the rule of this module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Reading a deprecated attribute warns.
        listed = torch.overrides.get_overridable_functions()
        names = {torch.overrides.resolve_name(function) or "" for own in listed.values() for function in own}
    return frozenset({*_ADDED, *(operator_of(name) for name in names if _is_public(name))})


def _is_public(name: str) -> bool:
    last = name.rpartition(".")[2]
    if not last or last.startswith("_") or last.endswith("_") or "__" in name or _LEFT_OUT.search(last):
        return False
    operator = operator_of(name)
    doc = _documentation(operator)
    alias = _ALIAS.search(doc)
    if alias is not None and operator_of(alias[1]) != operator and alias.start() < _FIRST_CHARS:
        return False
    return bool(doc) and _gives_tensor(operator)


def _documentation(operator: str) -> str:
    own = getattr(resolved(operator), "__doc__", None)
    method = getattr(getattr(torch.Tensor, operator.rpartition(".")[2], None), "__doc__", None)
    return own or method or ""


def _gives_tensor(operator: str) -> bool:
    """Whether a schema returns a tensor; a function without a schema is a Python function that calls operators."""
    found = schemas(operator)
    if not found:
        return not operator.startswith("torch.Tensor.")
    return any("Tensor" in str(given.type) for schema in found for given in schema.returns)
