"""The repro of a finding of a data loader: one file that needs torch and the user's module, and nothing of ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.loader.repro_template import LOAD_FACTORY, LOAD_TEST, MAIN, RANKS, TOKENS, WATCH

if TYPE_CHECKING:
    from ci_autotest.loader.comparison import Problem
    from ci_autotest.loader.observations import Observations
    from ci_autotest.values.verdict import Verdict

#: Text of the expression that reads a generator's state, by its class.
_STATES: Final = {
    "numpy.random.Generator": "repr(generator.bit_generator.state)",
    "numpy.random.RandomState": "repr(generator.get_state(legacy=False))",
    "random.Random": "repr(generator.getstate())",
    "torch.Generator": "repr(generator.get_state().tolist())",
}
#: What a sample is known by, and how the samples are compared.
_SHAPES: Final = {
    "workers": ("state", "workers"), "epochs": ("state", "epochs"), "ranks": ("state", "ranks"),
    "hidden": ("value", "hidden"), "whole": ("value", "whole"), "items": ("item", "items"), "rows": ("item", "ranks"),
    "order": ("item", "order"),
}  # fmt: skip


#: Start of the name under which a test file is imported.
FILE_MODULE: Final = "autotest_file_"


def file_module(file: str) -> str:
    """Return the name under which a test file is imported."""
    return FILE_MODULE + "".join(c if c.isalnum() else "_" for c in file)


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
    token, shape = _SHAPES[problem.pattern]
    held = problem.generator
    found = verdict.misalignment
    assert found is not None  # noqa: S101 - a problem has a misalignment
    title = f"{seen.dataset}: {found.candidate}.".replace("\\", "/").replace('"', "'")
    facts = {
        "title": title, "root": json.dumps(subject.root), "workers": subject.workers, "epochs": subject.epochs,
        "ranks": subject.ranks, "seed": subject.seed, "access": held.access if held is not None else "None",
        "state": _STATES[held.kind] if held is not None else "None", "fixed": json.dumps(found.reference),
        "wrong": json.dumps(found.candidate),
    }  # fmt: skip
    load = LOAD_TEST if subject.file else LOAD_FACTORY
    facts |= {"file": json.dumps(subject.file), "name": json.dumps(subject.name)}
    facts["module"] = json.dumps(file_module(subject.file))
    parts = [load, TOKENS[token], WATCH, RANKS if shape == "ranks" else "", MAIN[shape]]
    text = "".join(parts)
    for name, value in facts.items():
        text = text.replace(f"<{name}>", str(value))
    return text
