"""The process that observes a data loader: it imports the test, runs the loader, and writes down what it saw."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import msgspec

from ci_autotest.errors import AutotestError, error_text
from ci_autotest.host.this_process import end_with_parent
from ci_autotest.loader.declaration import LoaderDeclaration
from ci_autotest.loader.observations import Observations, ObserverTask
from ci_autotest.run.worker.main import user_traceback


def main(argv: list[str]) -> None:
    """Observe one loader.

    Args:
        argv: The task as JSON.
    """
    end_with_parent()
    task = msgspec.json.decode(argv[0], type=ObserverTask)
    sys.path += [folder for folder in task.folders if folder not in sys.path]
    try:
        seen = _observed(task)
    except AutotestError as error:
        seen = Observations(error=str(error), traceback=user_traceback(error.__cause__) if error.__cause__ else "")
    except BaseException as error:  # noqa: BLE001 - user code may raise anything, SystemExit too
        seen = Observations(error=_sentence(error), traceback=user_traceback(error))
    result = Path(task.result)
    unfinished = result.with_suffix(".part")
    unfinished.write_bytes(msgspec.json.encode(seen))
    unfinished.replace(result)
    sys.stdout.flush()
    # The interpreter's end would wait for workers that hang.
    os._exit(0)


def _observed(task: ObserverTask) -> Observations:
    gc.disable()  # Imports leave no garbage, and looking for it takes a quarter of their time.
    import torch  # noqa: PLC0415 - the task is read first, so that a fault of torch's import is reported

    from ci_autotest.loader.epochs import LoaderTrial  # noqa: PLC0415 - likewise
    from ci_autotest.run.worker.tests import Library  # noqa: PLC0415 - likewise

    gc.enable()
    torch.set_num_threads(1)
    declaration, make = Library(Path(task.root)).declared(task.file, task.name)
    assert isinstance(declaration, LoaderDeclaration)  # noqa: S101 - the parent asks for tests of loaders
    return LoaderTrial(declaration, make, task.seed, task.rank).observations()


def _sentence(error: BaseException) -> str:
    """Return an error in a line. The text of a loader worker's error holds its traceback, whose last line says it."""
    name, lines = type(error).__name__, error_text(error).strip().splitlines() or [""]
    return lines[-1] if lines[-1].startswith(f"{name}: ") else f"{name}: {lines[-1]}"


if __name__ == "__main__":
    main(sys.argv[1:])
