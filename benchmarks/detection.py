"""Detection rates of the shipped suite: each operator is made wrong in three ways, at 20 cases per test and at 5.

A wrong candidate is torch with one operator of the test perturbed: (1) *value*: the last element of its first result is
off by 1 % (by 0.01 if it is zero), integers by one, booleans flipped; (2) *gradient*: the result is right, and the last
element of the gradient of its first differentiable argument is off by 1 % (by 0.01 if it is zero); (3) *one kind only*:
the value, but only for one dtype of the result or, if a test has one dtype, under one profile. In the third way, every
kind that occurs within 20 cases of any seed, with at least one element, is a candidate of its own.

A rate is the share of pairs of an operator and a seed whose candidate is misaligned as `ci-autotest run` judges it.
``python -m benchmarks.detection [SEEDS] [FAMILY ...]``.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from ci_autotest.alignment.cases import Contender, accept, differentiate, try_case
from ci_autotest.alignment.tolerance_rules import rules_for
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.substitute.backend import SubstituteBackend
from ci_autotest.discovery import SUITE, families
from ci_autotest.program.random_calls import is_random
from ci_autotest.record.attempt import Attempts
from ci_autotest.record.declaration import Declaration, declaration_of
from ci_autotest.values.case import test_key
from ci_autotest.values.finding import TOLERATED_BLAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

CASES = 20
FEW = 5
OFF = 0.01
#: Operators of the tests whose name does not contain that of the operator.
OPERATORS = {
    "multi_head_attention": "linear", "transformer_encoder_layer": "layer_norm", "batch_norm_module": "batch_norm",
    "embedding_module": "embedding", "causal_attention": "scaled_dot_product_attention",
    "pad_mode": "pad", "rnn": "rnn_tanh", "view_as_real": "view_as_real", "equal_allclose": "full", "empty": "fill",
    "fractional_max_pool": "fractional_max_pool3d", "with_autocast": "softmax", "numbers_beside_tensors": "mul",
}  # fmt: skip
#: Calls that are never the operator of a test, such as reading an attribute.
_READS = frozenset({"__get__", "__set__", "size", "dim", "detach", "stride"})


class Bent(torch.autograd.Function):
    """The identity, with a gradient whose last element is off."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # noqa: ARG004 - autograd's
        """Return the tensor itself, as a view."""
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # noqa: ARG004 - autograd's
        """Return the gradient with its last element off."""
        return bent(gradient)


def bent(value: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor with its last element off."""
    if value.numel() == 0:
        return value
    wrong = value.clone()
    last = (-1,) * value.ndim
    with torch.no_grad():
        if value.dtype is torch.bool:
            wrong[last] = ~wrong[last]
        elif not value.dtype.is_floating_point and not value.dtype.is_complex:
            wrong[last] += 1
        else:
            wrong[last] += OFF if wrong[last] == 0 else wrong[last] * OFF
    return wrong


class Fault(TorchFunctionMode):
    """A mode in which the calls of one operator are wrong, and all others are right."""

    def __init__(self, operator: str, way: str) -> None:
        """Perturb an operator's ``value`` or ``gradient``."""
        super().__init__()
        self.operator, self.way = operator, way
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function, wrongly if it is the operator."""
        kwargs = kwargs or {}
        name = called(func)
        if name not in _READS:
            self.seen.append(name)
        if name != self.operator:
            return func(*args, **kwargs)
        if self.way == "gradient":
            taken = [False]
            return func(*handed(args, taken), **{key: handed(value, taken) for key, value in kwargs.items()})
        return wrong_first(func(*args, **kwargs), args)


def called(func: Any) -> str:
    """Return the bare name of a function."""
    name = resolve_name(func) or getattr(func, "__name__", "")
    bare = name.rpartition(".")[2]
    return bare.strip("_") if bare not in _READS else bare


def handed(value: Any, taken: list[bool]) -> Any:
    """Return arguments whose first differentiable tensor has passed through ``Bent``."""
    if isinstance(value, tuple | list):
        return type(value)(handed(item, taken) for item in value)
    if isinstance(value, torch.Tensor) and value.requires_grad and not taken[0]:
        taken[0] = True
        return Bent.apply(value)
    return value


def wrong_first(result: Any, args: Any) -> Any:
    """Return a result with its first tensor perturbed; an in-place result is perturbed in place."""
    if result is None or (isinstance(result, torch.Tensor) and args and result is args[0]):
        with torch.no_grad():
            args[0].copy_(bent(args[0].detach()))
        return result
    if isinstance(result, torch.Tensor):
        return bent(result)
    if isinstance(result, tuple | list) and result:
        items = [bent(result[0]) if isinstance(result[0], torch.Tensor) else wrong_first(result[0], ()), *result[1:]]
        return type(result)(items) if type(result) in {tuple, list} or hasattr(result, "n_fields") else tuple(items)
    return result


class Wrong(SubstituteBackend):
    """Torch with one wrong operator."""

    def __init__(self, operator: str, way: str) -> None:
        """Replace no operator by name, because the fault intercepts every call."""
        super().__init__({})
        self.operator, self.way = operator, way

    def run(self, program: Any, sources: Any, *, snapshots: bool = False, copied: Any = ()) -> Any:
        """Run the steps forward under the fault."""
        around = Fault(self.operator, self.way)
        return self._torch.run(program, sources, snapshots=snapshots, copied=copied, around=around)


class Case(NamedTuple):
    """Whether one case of a test found the wrong candidates, and of which kind the case is."""

    operator: str
    value: bool
    gradient: bool
    has_gradient: bool
    dtype: str
    profile: str
    has_element: bool


def operator_under(test: str, attempt: Any, before: str) -> str:
    """Return the operator of a test: the longest that it calls and that is part of its name, else the last call.

    For a random operator it is the last call as well, because its own result may be any number: the test computes
    properties of it. The operator stays that of the case before, unless the case does not call it: some tests call
    others in each case.
    """
    mode = Fault("", "")
    TorchBackend().run(attempt.program, attempt.sources, around=mode)
    if before in mode.seen:
        return before
    if OPERATORS.get(test) in mode.seen:
        return OPERATORS[test]
    inside = [name for name in mode.seen if name and name in test]
    found = max(inside, key=len) if inside else mode.seen[-1]
    return mode.seen[-1] if is_random(found) else found


def cases_of(declaration: Declaration, test: str, seed: int, attempts: Attempts) -> Iterator[Case]:
    """Compare both wrong candidates with torch in every case of a test that the reference accepts."""
    key = test_key(seed, test)
    rules = rules_for((), "tolerance", "wrong", declaration)
    reference = TorchBackend()
    operator = ""

    def draw(case: int, number: int) -> Any:
        return attempts.attempt(declaration, declaration.body, (key, test, case, number))

    for case in range(CASES):
        attempt = accept(case, draw, {}, lambda _case, _name, _number: None).attempt
        if attempt is None:
            continue
        operator = operator_under(test.rpartition("::")[2], attempt, operator)
        differentiate(attempt, reference)
        verdicts = [
            is_found(try_case(attempt, Contender(Wrong(operator, way), rules), reference).verdict)
            for way in ("value", "gradient")
        ]
        outputs = [attempt.trace.values[ref.index] for ref in attempt.program.body[-1].args]
        dtype = str(outputs[0].dtype).removeprefix("torch.") if isinstance(outputs[0], torch.Tensor) else ""
        has_element = any(not isinstance(value, torch.Tensor) or value.numel() > 0 for value in outputs)
        has_gradient = any(gradient is not None for gradient in attempt.trace.gradients.values())
        may_be_bent = has_gradient or bool(attempt.trace.cotangents)
        yield Case(operator, *verdicts, may_be_bent, dtype, attempt.profile, has_element)


def is_found(verdict: Any) -> bool:
    return verdict.outcome == "misaligned" and verdict.blame not in TOLERATED_BLAMES


def kinds_of(cases: list[Case]) -> tuple[str, set[str]]:
    """Return whether kinds are dtypes or profiles, and the kinds that occur with at least one element."""
    cases = [case for case in cases if case.has_element]
    dtypes = {case.dtype for case in cases}
    return ("dtype", dtypes) if len(dtypes) > 1 else ("profile", {case.profile for case in cases})


def main(seeds: int, wanted: list[str]) -> int:
    torch.set_num_threads(1)
    attempts = Attempts()
    begun = time.perf_counter()
    shares: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    missed, without = [], []
    for family in wanted or families():
        module = importlib.import_module(f"ci_autotest.suite.{family}")
        for name, value in vars(module).items():
            declaration = declaration_of(value)
            if declaration is None or declaration.raises:
                continue  # an operator that must be refused has no result that could be wrong
            test = f"{SUITE}/{family}::{name}"
            runs = [list(cases_of(declaration, test, seed, attempts)) for seed in range(seeds)]
            count(runs, shares[family], test, missed, without)
    report(shares, missed, without)
    print(f"\n{seeds} seeds, {time.perf_counter() - begun:.0f} s")
    return len(missed)


def count(runs: Any, share: dict[str, list[bool]], test: str, missed: list[str], without: list[str]) -> None:
    """Add the runs of a test, one per seed, to its family's rates."""
    field, kinds = kinds_of([case for cases in runs for case in cases])
    has_gradient = any(case.has_gradient for cases in runs for case in cases)
    if not has_gradient:
        without.append(test.rpartition("/")[2])
    for seed, cases in enumerate(runs):
        for n in (CASES, FEW):
            some = cases[:n]
            share[f"value {n}"].append(any(case.value for case in some))
            if has_gradient:
                share[f"gradient {n}"].append(any(case.gradient for case in some))
            for kind in kinds:
                share[f"kind {n}"].append(any(case.value and getattr(case, field) == kind for case in some))
        for way in ("value", "gradient"):
            if not any(getattr(case, way) for case in cases) and (way == "value" or has_gradient):
                missed.append(f"{test} ({cases[0].operator}), {way}, seed {seed}")


def report(shares: Any, missed: list[str], without: list[str]) -> None:
    columns = [f"{way} {n}" for way in ("value", "gradient", "kind") for n in (CASES, FEW)]
    print(
        "| family | operators | " + " | ".join(f"{name.split()[0]}, n = {name.split()[1]}" for name in columns) + " |"
    )
    print("|---" * (len(columns) + 2) + "|")
    total: dict[str, list[bool]] = defaultdict(list)
    operators = 0
    for family, share in shares.items():
        module = importlib.import_module(f"ci_autotest.suite.{family}")
        number = sum(declaration_of(value) is not None for value in vars(module).values())
        operators += number
        print(f"| {family} | {number} | " + " | ".join(percent(share[name]) for name in columns) + " |")
        for name in columns:
            total[name] += share[name]
    print(f"| all | {operators} | " + " | ".join(percent(total[name]) for name in columns) + " |")
    print(f"\nNo gradient that could be wrong (integer or boolean results): {', '.join(without) or 'none'}.")
    print("Missed at n = 20: " + ("; ".join(missed) or "none") + ".")


def percent(found: list[bool]) -> str:
    return f"{100 * sum(found) / len(found):.0f} %" if found else "none"


if __name__ == "__main__":
    arguments = sys.argv[1:]
    number = int(arguments.pop(0)) if arguments and arguments[0].isdigit() else 3
    sys.exit(min(main(number, arguments), 1))
