"""The API for test authors, with types. Users import these names from ``ci_autotest``."""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ci_autotest.call_capture.session import capture
from ci_autotest.config import shapes_of
from ci_autotest.errors import AuthorError, ConfigError, NoCandidateError, SessionError, UnavailableError
from ci_autotest.in_process import NOTICE, run_here, setting_of, stop_unittest
from ci_autotest.loader.declaration import loader_declared
from ci_autotest.loader.in_process import run_loader_here
from ci_autotest.record.attempt import Attempts
from ci_autotest.record.body_call import callers_signature, case_name, fixtures_of, parametrized, with_case
from ci_autotest.record.context import CURRENT
from ci_autotest.record.dependent_tensors import (
    choice_tensor,
    index_tensor,
    invertible_tensor,
    permutation_tensor,
    positive_definite_tensor,
    symmetric_tensor,
)
from ci_autotest.record.draw.dtypes import random_dtype
from ci_autotest.record.draw.generators import (
    constant,
    cpu_device,
    gpu_device,
    nothing,
    oneof,
    random,
    random_bool,
    random_device,
    random_or_nothing,
)
from ci_autotest.record.duplicate_tests import refuse_duplicate
from ci_autotest.record.expectations import expect
from ci_autotest.record.grids import every, grid_points, may_have_grid
from ci_autotest.record.module_hooks import refuse_lost_hooks
from ci_autotest.record.notes import note
from ci_autotest.record.options import declared
from ci_autotest.record.skips import assume
from ci_autotest.record.stored_tensors import stored_tensor
from ci_autotest.record.tensors import draw_tensor
from ci_autotest.record.torch_namespace import Namespace
from ci_autotest.record.user_generators import Draws, generator
from ci_autotest.record.user_operators import operator
from ci_autotest.values.case import test_key
from ci_autotest.values.declared_test import ATTRIBUTE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from ci_autotest.backends.trace import Attempt
    from ci_autotest.record.declaration import Declaration
    from ci_autotest.record.draw.generators import Generator
    from ci_autotest.values.case import DrawnValue

    F = TypeVar("F", bound=Callable[..., Any])
else:
    import torch as _torch

    torch = Namespace("torch", _torch)

__all__ = [
    "Draws",
    "assume",
    "autotest",
    "capture",
    "choice_tensor",
    "constant",
    "cpu_device",
    "every",
    "expect",
    "generator",
    "gpu_device",
    "index_tensor",
    "invertible_tensor",
    "loadertest",
    "note",
    "nothing",
    "oneof",
    "operator",
    "permutation_tensor",
    "positive_definite_tensor",
    "random",
    "random_bool",
    "random_device",
    "random_dtype",
    "random_or_nothing",
    "random_pytorch_dtype",
    "random_pytorch_tensor",
    "random_tensor",
    "stored_tensor",
    "symmetric_tensor",
    "torch",
]


#: unittest leaves out the frames of modules that have this name, so a failure shows its message alone.
__unittest = True


def random_tensor(
    ndim: int | Generator | None = None,
    dim0: int | Generator | None = None,
    dim1: int | Generator | None = None,
    dim2: int | Generator | None = None,
    dim3: int | Generator | None = None,
    dim4: int | Generator | None = None,
    low: float | Generator | None = None,
    high: float | Generator | None = None,
    dtype: Any = float,
    requires_grad: bool | Generator = True,
    dims: Sequence[int | Generator | None] | None = None,
) -> torch.Tensor:
    """Return a recorded tensor with drawn shape and data.

    Args:
        ndim: Number of dimensions; drawn from 1 to 5 by default.
        dim0: Size in elements, or a generator; by default free, that is, drawn from 1 to 7. ``dim1`` to ``dim4``
            work the same way.
        dim1: See ``dim0``.
        dim2: See ``dim0``.
        dim3: See ``dim0``.
        dim4: See ``dim0``.
        low: Lowest value, in the unit of the elements (default: -1 for floats, -10 for integers).
        high: Upper bound, exclusive (default: 1 for floats, 11 for integers).
        dtype: ``float``, ``int``, ``bool``, ``complex``, a torch dtype, or a generator of one.
        requires_grad: Whether the tensor requires grad; integers and booleans never do.
        dims: All sizes in order, for any number of dimensions; replaces ``ndim`` and ``dim0`` to ``dim4``. A size of
            ``None`` is free.

    Raises:
        AuthorError: Called outside a test, or with arguments that contradict each other.
    """
    named = (dim0, dim1, dim2, dim3, dim4)
    value: Any
    if dims is None:
        value = draw_tensor(ndim, named, low, high, dtype, requires_grad)
    else:
        if ndim is not None or any(dim is not None for dim in named):
            message = "random_tensor() got dims and also ndim or dim0 to dim4. Give either dims or the others."
            raise AuthorError(message)
        value = draw_tensor(len(dims), dims, low, high, dtype, requires_grad)
    return value  # type: ignore[no-any-return]


#: What OneFlow's AutoTest calls these two.
random_pytorch_tensor = random_tensor
random_pytorch_dtype = random_dtype


def autotest(
    n: int | None = None,
    auto_backward: bool | Literal["auto"] = True,
    rtol: float | None = None,
    atol: float | None = None,
    check_dtype: bool = True,
    check_graph: bool | Literal["ValidatedFalse"] = False,
    profiles: Sequence[str] | None = None,
    dtypes: Sequence[Any] | None = None,
    id: str | None = None,  # noqa: A002 - the name is given from outside
    check_allclose: bool = True,
    check_grad_use_random_data: bool = True,
    include_complex: bool = False,
    raises: type[Exception] | tuple[type[Exception], ...] | None = None,
    match: str | None = None,
    examples: Sequence[Mapping[str, float]] | None = None,
    batch: Mapping[int, int] | None = None,
    forms: Sequence[str] | None = None,
    **unknown: Any,
) -> Callable[[F], F]:
    """Declare a function, or a method of a ``unittest.TestCase``, as a test of operators.

    Under pytest and unittest the function runs in their process, without isolation, on ``torch`` and the candidates of
    the nearest ``autotest.yml``. ``ci-autotest run`` runs each case in a worker process and survives a crash.

    Args:
        n: Number of cases; the configuration's ``cases`` by default.
        auto_backward: Whether to run a backward pass from every output that requires grad and compare the gradients.
            OneFlow's ``"auto"`` means the same: outputs without a gradient are skipped.
        rtol: Allowed ratio to the reference. The default depends on the dtype, also if only ``atol`` is given.
        atol: Allowed difference in the unit of the elements, with a default like that of ``rtol``.
        check_dtype: Whether a different dtype is a misalignment.
        check_graph: Whether each candidate also runs the body as one compiled graph; its results must agree with the
            candidate's own eager results. OneFlow's ``"ValidatedFalse"`` means no.
        profiles: Names of the profiles to run besides ordinary cases; all by default.
        dtypes: The dtypes of ``random_tensor()`` calls without a dtype, or groups of them as in ``random_dtype()``,
            used in turn; float32 by default. One that is named twice is used twice as often.
        id: A name that the test keeps when it moves to another file.
        check_allclose: Whether to compare elements; shapes, dtypes and flags are always compared.
        check_grad_use_random_data: Whether the backward pass starts from random signed gradients; ones otherwise.
        include_complex: Whether complex64 is added to the dtypes.
        raises: The exception that the body must end with, because the reference refuses one of its steps. A candidate
            that accepts that step fails the run.
        match: A regular expression for the reference's error message; candidates may word theirs differently.
        examples: Draws that the first cases have, by the names that ``ci-autotest draws TEST`` prints; these cases are
            ordinary, and draw at random what an example does not name.
        batch: For candidates whose ranks share the batch: the dimension of the batch of each tensor that has one, by
            the number of the tensor in the order in which the body draws them; the first one of every tensor by
            default.
        forms: Forms in which some cases make their calls, each in one or two of 20: ``autocast`` (to bfloat16), ``out``
            (each call that takes ``out=`` gets one), ``second_derivatives`` (the gradients are outputs too, and are
            differentiated). A call for which torch has no such form stays as it is.
        unknown: Anything else is an error.

    Raises:
        AuthorError: Written without parentheses, with an unknown option, or with a value that an option does not take.
    """
    given = {
        "n": n, "auto_backward": auto_backward, "rtol": rtol, "atol": atol, "check_dtype": check_dtype,
        "check_graph": check_graph, "profiles": profiles, "dtypes": dtypes, "forms": forms, "id": id,
        "check_allclose": check_allclose, "check_grad_use_random_data": check_grad_use_random_data,
        "include_complex": include_complex, "raises": raises, "match": match, "examples": examples, "batch": batch,
        **unknown,
    }  # fmt: skip
    declared(lambda: None, given)  # reports a wrong option at the line of the decorator

    def decorate(body: F) -> F:
        declaration = declared(body, given)

        @functools.wraps(body)
        def test(*args: Any, **kwargs: Any) -> Any:
            if CURRENT.get() is not None:
                return body(*args, **kwargs)  # one test calls another: the outer test records both
            __tracebackhide__ = True
            try:
                return _run_here(declaration, test, *with_case(body, args, kwargs))
            except NoCandidateError:
                stop_unittest(args)
                raise
            except (ConfigError, UnavailableError) as error:
                stop_unittest(args)
                raise SessionError(str(error)) from None

        # Otherwise pytest would read the signature of the body, and look for a fixture for its test case.
        del test.__wrapped__
        test.__signature__ = callers_signature(body)  # type: ignore[attr-defined]
        setattr(test, ATTRIBUTE, declaration)
        return test  # type: ignore[return-value]

    return decorate


def loadertest(
    workers: int = 4,
    epochs: int = 2,
    ranks: int = 1,
    id: str | None = None,  # noqa: A002 - as for `autotest`
    **unknown: Any,
) -> Callable[[F], F]:
    """Declare a function, or a method of a ``unittest.TestCase``, as a test of a data loader.

    The function returns a ``Dataset``, an ``IterableDataset``, a ``DataLoader``, or a function ``make(seed)`` that
    returns a ``DataLoader``. It is called several times, in a process of its own. Workers, epochs and ranks that draw
    the same random numbers fail the test.

    Args:
        workers: Number of worker processes, whatever number the loader has.
        epochs: Epochs that are compared with each other; 1 allows epochs that repeat each other.
        ranks: Processes that call the function, with the environment variables that ``torchrun`` sets.
        id: A name that the test keeps when it moves to another file.
        unknown: Anything else is an error.

    Raises:
        AuthorError: Written without parentheses, with an unknown option, or with a value that an option does not take.
    """
    given = {"workers": workers, "epochs": epochs, "ranks": ranks, "id": id, **unknown}
    loader_declared(lambda: None, given)  # reports a wrong option at the line of the decorator

    def decorate(body: F) -> F:
        declaration = loader_declared(body, given)

        @functools.wraps(body)
        def test(*args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            try:
                run_loader_here(declaration, case_name(body, args, kwargs))
            except (ConfigError, UnavailableError) as error:
                stop_unittest(args)
                raise SessionError(str(error)) from None

        del test.__wrapped__
        test.__signature__ = callers_signature(body)  # type: ignore[attr-defined]
        setattr(test, ATTRIBUTE, declaration)
        return test  # type: ignore[return-value]

    return decorate


def _run_here(
    declaration: Declaration, function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Run a test in the process that called it, with the same inputs as under ``ci-autotest run``."""
    __tracebackhide__ = True
    body = declaration.body
    refuse_duplicate(body.__code__.co_filename, body.__qualname__)
    called = case_name(body, args, kwargs)
    line = body.__code__.co_firstlineno
    setting = setting_of(body.__code__.co_filename, body.__qualname__, declaration.id, called, line)
    attempts, test = _attempts(shapes_of(setting.candidates)), setting.test
    refuse_lost_hooks()  # pytest resets the warning filters after each test
    key = test_key(setting.seed, test)
    call = functools.partial(body, *args, **kwargs)
    grid = 0
    if may_have_grid(body.__code__.co_filename):
        grid = grid_points(lambda case: attempts.attempt(declaration, call, (key, test, case, 0)))
    declaration = replace(declaration, grid=grid)
    is_method = "." in body.__qualname__ and "<locals>" not in body.__qualname__
    fixtures = fixtures_of(body, parametrized(function, body)[0].given, is_method=is_method)
    setting = setting._replace(needs_pytest=bool(fixtures))

    def draw(
        case: int, number: int, edits: Mapping[str, DrawnValue] | None = None, profile: str | None = None
    ) -> Attempt:
        return attempts.attempt(declaration, call, (key, test, case, number), edits, profile)

    run_here(declaration, setting, draw)


@functools.lru_cache(maxsize=8)
def _attempts(shapes: int) -> Attempts:
    _print_notice()
    return Attempts(shapes=shapes)


@functools.lru_cache(maxsize=1)
def _print_notice() -> None:
    sys.stderr.write(NOTICE)
