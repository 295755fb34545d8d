"""Which calls draw random numbers: the operators and layers that may, and the arguments with which they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.program.ir import CALL_FUNCTION, CALL_MODULE, List, step_refs
from ci_autotest.program.roles import DROPOUT_LAYERS, DROPOUTS
from ci_autotest.program.targets import DISPATCHER, last_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.program.ir import Program, Step

#: Layers that drop elements between their parts.
RECURRENT: Final = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
#: Operators that draw from the framework's generator. A seed is set before each such step (SEMANTICS, rule 15).
RANDOM: Final = RECURRENT | {
    "svd_lowrank", "pca_lowrank", "lobpcg",
    "xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal", "orthogonal", "trunc_normal", "sparse",
    *DROPOUTS, "rrelu", "bernoulli",
    "multinomial", "normal", "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm",
    "poisson", "gumbel_softmax", "uniform", "cauchy", "exponential", "geometric", "log_normal", "random",
    "scaled_dot_product_attention", "multi_head_attention_forward", "fractional_max_pool2d", "fractional_max_pool3d",
    "fractional_max_pool2d_with_indices", "fractional_max_pool3d_with_indices",
}  # fmt: skip
#: The same of entries of PyTorch's dispatcher.
_RANDOM_ENTRIES: Final = RANDOM | {
    "native_dropout", "_fused_dropout", "binomial", "_standard_gamma", "_sample_dirichlet", "rrelu_with_noise",
    "rrelu_with_noise_functional", "normal_functional", "feature_dropout",
}  # fmt: skip


class QuietArgument(NamedTuple):
    """An argument with which an operator draws nothing.

    Attributes:
        position: In the operator's signature.
        name: By keyword.
        default: If it is not given.
        values: With which nothing is drawn.
    """

    position: int
    name: str
    default: bool | float | None
    values: frozenset[object]


_OFF: Final = frozenset({False})
#: Everything is dropped, or nothing.
_CERTAIN: Final = frozenset({0, 1})
_SHARE: Final = QuietArgument(1, "p", 0.5, _CERTAIN)
_POOLS: Final = tuple(f"fractional_max_pool{n}d{end}" for n in (2, 3) for end in ("", "_with_indices"))
#: Source: PyTorch 2.13, ``torch/nn/functional.py``. ``torch.dropout`` says ``train`` where the functional says
#: ``training``.
_QUIET: Final[dict[str, tuple[QuietArgument, ...]]] = {
    "scaled_dot_product_attention": (QuietArgument(4, "dropout_p", 0.0, _CERTAIN),),
    "multi_head_attention_forward": (
        QuietArgument(13, "training", default=True, values=_OFF), QuietArgument(10, "dropout_p", 0.0, _CERTAIN),
    ),
    "rrelu": (QuietArgument(3, "training", default=False, values=_OFF),),
    # The dispatcher's entry has the noise before the bounds.
    **dict.fromkeys(
        ("rrelu_with_noise", "rrelu_with_noise_functional"),
        (QuietArgument(4, "training", default=False, values=_OFF),),
    ),
    **dict.fromkeys(
        ("dropout", "dropout1d", "dropout2d", "dropout3d", "native_dropout", "feature_dropout"),
        (QuietArgument(2, "training", default=True, values=_OFF), _SHARE),
    ),
    "_fused_dropout": (_SHARE,),
    **dict.fromkeys(
        ("alpha_dropout", "feature_alpha_dropout"), (QuietArgument(2, "training", default=False, values=_OFF), _SHARE)
    ),
}  # fmt: skip

#: Layers that drop elements in training: place, name and default of the share that they drop. Source: as above,
#: ``torch/nn/modules``.
_SHARES: Final[dict[str, tuple[int, str, float]]] = {
    **dict.fromkeys(DROPOUT_LAYERS, (0, "p", 0.5)),
    **dict.fromkeys(("LSTM", "GRU"), (5, "dropout", 0.0)),
    "RNN": (6, "dropout", 0.0),
    "MultiheadAttention": (2, "dropout", 0.0),
    **dict.fromkeys(("TransformerEncoderLayer", "TransformerDecoderLayer"), (3, "dropout", 0.1)),
    "Transformer": (5, "dropout", 0.1),
}
_RECURRENT_LAYERS: Final = frozenset({"LSTM", "GRU", "RNN"})
_ALWAYS: Final = frozenset({"FractionalMaxPool2d", "FractionalMaxPool3d"})


def is_random(target: str) -> bool:
    """Whether a function or method of this name may draw from the framework's generator."""
    name = last_name(target)
    return not {name, name.rstrip("_")}.isdisjoint(_RANDOM_ENTRIES if target.startswith(DISPATCHER) else RANDOM)


def may_be_quiet(operator: str) -> bool:
    """Whether an operator draws or not depending on its arguments."""
    name = last_name(operator)
    return name in _QUIET or name in RECURRENT or name in _POOLS


def draws(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call draws random numbers.

    Args:
        target: Of the function or method.
        args: Positional arguments, the receiver of a method among them.
        kwargs: Keyword arguments.
    """
    name = last_name(target)
    name = name if name in _RANDOM_ENTRIES else name.rstrip("_")
    if name not in _RANDOM_ENTRIES:
        return False
    if name in RECURRENT:
        return _drops(args, kwargs)
    if name in _POOLS:  # Where its windows begin may be given.
        return kwargs.get("_random_samples", args[5] if len(args) > 5 else None) is None  # noqa: PLR2004
    return not any(_is_quiet(row, args, kwargs) for row in _QUIET.get(name, ()))


def _is_quiet(row: QuietArgument, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    value = kwargs.get(row.name, args[row.position] if len(args) > row.position else row.default)
    if row.name == "training":
        value = kwargs.get("train", value)
    return isinstance(value, bool | int | float) and value in row.values


def _drops(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a recurrent layer drops elements: its parameters come first, then a flag, layers, probability.

    A module's call has its attributes as keywords, ``dropout_p`` among them. What is not said is not dropped: a kernel
    whose calls were wrongly taken for random ones would be compared no further.
    """
    at = max((i for i, arg in enumerate(args) if isinstance(arg, tuple | list | List)), default=len(args))
    given = dict(zip(("has_biases", "num_layers", "dropout", "train"), args[at + 1 :], strict=False)) | dict(kwargs)
    share = given.get("dropout", given.get("dropout_p", 0.0))
    is_training = given.get("train", given.get("training", False))
    return bool(is_training) and share not in _CERTAIN and given.get("num_layers") != 1


def seeds_of(program: Program) -> dict[int, int]:
    """Return the seeds of the steps that draw random numbers, by step; every call of a module is recorded with one."""
    modules = drawing_modules(program)
    return {
        index: step.seed
        for index, step in enumerate(program.steps)
        if step.seed is not None and (step.op != CALL_MODULE or index in modules)
    }


def drawing_modules(program: Program) -> frozenset[int]:
    """Return the calls of modules that draw random numbers, told by constructors and calls of ``eval``.

    A container draws if one of its parts does. The modes of its parts are not looked at, only its own.
    """
    drawing: dict[int, str] = {}
    found = []
    for index, step in enumerate(program.steps):
        if step.op == CALL_FUNCTION and (how := _layer(step)):
            drawing[index] = how
        elif step.in_setup and (step.op == CALL_FUNCTION or step.target == "get_submodule"):
            parts = {drawing[ref.index] for ref in step_refs(step) if ref.index in drawing}
            if parts:
                drawing[index] = "always" if "always" in parts else "in training"
        elif step.sets_training is not None:
            at = step.receiver
            if at is not None and drawing.get(at) in {"in training", "in evaluation"}:
                drawing[at] = "in training" if step.sets_training else "in evaluation"
        elif step.op == CALL_MODULE and drawing.get(step_refs(step)[0].index) in {"always", "in training"}:
            found.append(index)
    return frozenset(found)


def _layer(step: Step) -> str:
    """Return when the layer that a step constructs draws random numbers; "" if it never does."""
    namespace, _, name = step.target.rpartition(".")
    if not namespace.startswith("torch.nn"):
        return ""
    given = dict(step.kwargs)

    def argument(position: int, name: str, default: float | None) -> object:
        return given.get(name, step.args[position] if len(step.args) > position else default)

    if name in _ALWAYS:
        return "always" if argument(5, "_random_samples", None) is None else ""
    if name == "RReLU":
        return "in training" if argument(0, "lower", 1 / 8) != argument(1, "upper", 1 / 3) else ""
    if name not in _SHARES or (name in _RECURRENT_LAYERS and argument(2, "num_layers", 1) == 1):
        return ""
    return "" if argument(*_SHARES[name]) in _CERTAIN else "in training"
