"""The repro of a finding of a data loader: one file that needs torch and the user's module, and nothing of ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.program.python_names import file_module
from ci_autotest.program.repro.script import Script, import_block, of_library

if TYPE_CHECKING:
    from ci_autotest.loader.comparison import Problem
    from ci_autotest.loader.observations import Observations, ObservedGenerator
    from ci_autotest.values.verdict import Verdict


#: Text of the expression that reads a generator's state, by its class.
_STATES: Final = {
    "numpy.random.Generator": "repr(generator.bit_generator.state)",
    "numpy.random.RandomState": "repr(generator.get_state(legacy=False))",
    "random.Random": "repr(generator.getstate())",
    "torch.Generator": "repr(generator.get_state().tolist())",
}
#: What a sample is known by, and the function of the library that counts, by the pattern of a problem.
_COUNTS: Final = {
    "workers": ("state", "of_workers"), "epochs": ("state", "of_epochs"), "ranks": ("state", "of_ranks"),
    "hidden": ("value", "of_equal_items"), "whole": ("value", "of_whole"), "items": ("item", "of_items"),
    "rows": ("item", "of_ranks"), "order": ("item", "of_order"),
}  # fmt: skip


class Subject(NamedTuple):
    """How a loader is made again.

    Attributes:
        root: The configuration's folder.
        file: File of the test relative to it; empty for a factory of a module.
        name: Qualified name of the test, or ``MODULE:FACTORY``.
        workers: Number of workers.
        epochs: Number of epochs.
        ranks: Number of ranks.
        seed: Seed of the global generators.
    """

    root: str
    file: str
    name: str
    workers: int
    epochs: int
    ranks: int
    seed: int


def script(problem: Problem, seen: Observations, subject: Subject, verdict: Verdict) -> str:
    """Return the script that shows a problem; empty if a script cannot make the loader again.

    Args:
        problem: The first problem of the loader.
        seen: What was observed.
        subject: How the loader is made.
        verdict: The verdict, whose words head the script.
    """
    if "[" in subject.name:  # the arguments of `parametrize` are known to pytest's marks only
        return ""
    known_by, count = _COUNTS[problem.pattern]
    found = verdict.misalignment
    assert found is not None  # noqa: S101 - a problem has a misalignment
    title = f"{seen.dataset}: {found.candidate}.".replace("\\", "/").replace('"', "'")
    entry = f"counted({count}, {json.dumps(found.candidate)}, {json.dumps(found.reference)})"
    of_rank = '    if sys.argv[1:] == ["--rank"]:\n        print_tokens()\n        sys.exit(0)\n'
    end = [
        'if __name__ == "__main__":\n',
        *([of_rank] if count == "of_ranks" else ()),
        f"    sys.exit({entry})",
    ]
    made = Script(
        modules=of_library("loaders"),
        sides=[f"def function():\n    return {_made(subject)}", _token_text(known_by, problem.generator)],
        values=f"WORKERS, EPOCHS, RANKS, SEED = {subject.workers}, {subject.epochs}, {subject.ranks}, {subject.seed}\n"
        f"BY_STATE = {known_by == 'state'}",
        run="# What follows makes the loader, and counts what is shared.",
        end="".join(end),
    )
    return made.text(lambda imports, _: _HEAD % {"title": title, "imports": import_block({*imports, "import sys"})})


_HEAD: Final = '''"""%(title)s

Ends with 1 while it does, with 0 when it is mended, and with 2 if the loader cannot be made. It needs torch and the
module of the dataset.
"""

%(imports)s'''


def _made(subject: Subject) -> str:
    """Return the expression of the function that makes the loader."""
    root, name = json.dumps(subject.root), json.dumps(subject.name)
    if not subject.file:
        return f"from_factory({root}, {name})"
    return f"from_test({root}, {json.dumps(subject.file)}, {json.dumps(file_module(subject.file))}, {name})"


def _token_text(known_by: str, generator: ObservedGenerator | None) -> str:
    """Return the function that says what a sample is known by."""
    head = "def token(dataset, iterator, collate_fn, index, result):\n"
    if known_by != "state":
        return f"{head}    return repr({'result' if known_by == 'value' else 'index'})"
    access, state = (generator.access, _STATES[generator.kind]) if generator is not None else ("None", "None")
    return f'''{head}    """Return the state of the generator, from which the numbers of the next sample follow."""
    try:
        generator = {access}
        return {state}
    except (AttributeError, IndexError, KeyError, TypeError):
        return None  # it is made later, and may be declared as None before'''
