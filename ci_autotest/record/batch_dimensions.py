"""The batch dimension of each input of a case, as given by ``@autotest(batch=…)``.

``batch`` names a tensor by its number, from 0, among those that the body draws or takes from outside. Expected values,
the state of modules and the inputs that a form adds have no number. In memory that a form adds for the result of a
call, the dimension that has the index and size of another tensor's batch dimension is taken as the batch dimension.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ci_autotest.errors import AuthorError
from ci_autotest.program.expectations import expected_inputs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ci_autotest.program.ir import Program


class _Input(NamedTuple):
    key: str
    shape: tuple[int, ...]


def batch_of(
    program: Program, named: Mapping[int, int] | None, added: Collection[str], *, is_usual: bool
) -> Mapping[str, int] | None:
    """Return the batch dimension of each input that has one, by its key; ``None`` for the first of every input.

    Args:
        program: The program of the case.
        named: The batch dimension of each tensor that has one, by its number; ``None`` if the test names none.
        added: Keys of the inputs that the form of the case adds.
        is_usual: True if only the body decides the shapes. A profile or a search may draw a tensor without the
            dimension. Such a case has no batch to split, and the author is not to blame.

    Raises:
        AuthorError: There is no such tensor, it has no such dimension, or the dimensions have different sizes.
    """
    if named is None and not added:
        return None
    inputs = _inputs(program)
    own = [each for each in inputs if each.key not in added]
    if named is not None and is_usual:
        _refuse_wrong(named, own)
    places = {at: 0 for at, each in enumerate(own) if each.shape} if named is None else named
    split = [(own[at], dimension) for at, dimension in places.items() if at < len(own)]
    found = {each.key: dimension for each, dimension in split}
    sizes = {(at, each.shape[at]) for each, at in split if at < len(each.shape)}
    return found | _of_added([each for each in inputs if each.key in added], sizes)


def _of_added(inputs: Sequence[_Input], sizes: Collection[tuple[int, int]]) -> dict[str, int]:
    """Return the batch dimension of the inputs that a form adds.

    It is a guess. Before any rank runs, the results of the slices are compared with those of the whole batch.
    """
    found = {}
    for key, shape in inputs:
        places = [at for at, size in enumerate(shape) if (at, size) in sizes]
        if places:
            found[key] = places[0]
    return found


def _inputs(program: Program) -> list[_Input]:
    """Return the inputs that have a number, in order, with those that a form adds."""
    steps, expected = program.steps, expected_inputs(program.steps)
    given = ((index, spec) for index, spec in program.inputs.items() if index not in expected and not spec.state)
    return [_Input(steps[index].target, spec.shape) for index, spec in given]


def _refuse_wrong(named: Mapping[int, int], inputs: list[_Input]) -> None:
    sizes: dict[int, str] = {}
    given = f"autotest(batch={dict(named)!r})"
    for number, dimension in named.items():
        if number >= len(inputs):
            message = (
                f"{given} names tensor {number}, and the body draws {_existing('tensor', len(inputs))}. Tensors count "
                "from 0, in the order in which the body draws them. Name only those that it draws in every case."
            )
            raise AuthorError(message)
        shape = inputs[number].shape
        if dimension >= len(shape):
            message = (
                f"{given} names dimension {dimension} of tensor {number}, which has "
                f"{_existing('dimension', len(shape))}. Correct the number, or draw the tensor with more dimensions in "
                "every case."
            )
            raise AuthorError(message)
        sizes.setdefault(shape[dimension], f"{shape[dimension]} in dimension {dimension} of tensor {number}")
    if len(sizes) > 1:
        message = (
            f"{given} names dimensions of different sizes: {' and '.join(sizes.values())}. All tensors of a batch have "
            "as many rows. Draw them with the same size, or leave out those that every rank gets whole."
        )
        raise AuthorError(message)


def _existing(noun: str, count: int) -> str:
    """Return the numbers of ``count`` things as text."""
    if not count:
        return f"no {noun}"
    return f"only {noun} 0" if count == 1 else f"only {noun}s 0 to {count - 1}"
