"""The captured process: ``python -m ci_autotest.call_capture JOURNAL SPOOL KIND TARGET [ARGUMENT]...``.

KIND is ``script``, ``module`` or ``command``; SPOOL is empty if elements are not to be stored. It runs the program as
Python would: its arguments, ``__main__``, exit status, signals and tracebacks are its own. What was captured is written
down when the program ends, however it does; new calls are written down at once.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import io
import os
import runpy
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.call_capture.journal import Journal, TensorSpool
from ci_autotest.call_capture.observation import Capture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec

    from ci_autotest.call_capture.mode import CallMode


# A hook that acts as soon as a program has imported torch.
#
# The program imports torch when it wants, because what it sets before (environment variables, for example) counts then.


class _TorchImport(importlib.abc.MetaPathFinder):
    """Call a function once torch is imported.

    Args:
        then: The function.
    """

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the signature is given from outside
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return torch's own spec with a loader that calls the function after loading."""
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            spec.loader = _TorchLoader(spec.loader, self._then)
        return spec


class _TorchLoader(importlib.abc.Loader):
    def __init__(self, loader: Any, then: Callable[[], None]) -> None:
        self._loader, self._then = loader, then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then()


_HERE: Final = str(Path(__file__).parent)


class _Session:
    """The capture of this process, which begins when the program imports torch."""

    def __init__(self, journal: Journal, spool: TensorSpool | None) -> None:
        self._journal = journal
        self._spool = spool
        self._mode: CallMode | None = None

    def begin(self) -> None:
        from ci_autotest.call_capture.mode import CallMode  # noqa: PLC0415 - torch is the program's to import

        self._mode = CallMode(self._journal, self._spool)
        self._mode.__enter__()

    def end(self) -> None:
        self._journal.end(self._mode.capture() if self._mode is not None else Capture())


def main(arguments: list[str]) -> None:
    """Run a program and capture its calls."""
    journal, spool, kind, target, *rest = arguments
    # A compiled function is one kernel for the mode; in eager mode it is the operators that the program wrote.
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    session = _Session(Journal(Path(journal)), TensorSpool(Path(spool)) if spool else None)
    sys.meta_path.insert(0, _TorchImport(session.begin))
    try:
        if kind == "module":
            sys.argv = [target, *rest]
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            _run_source(kind, target, rest)
    except SystemExit:
        raise
    except BaseException as error:
        _without_own_frames(error)
        sys.excepthook(type(error), error, error.__traceback__)
        # It was shown, without the frames that run the program; Python still ends as for any exception.
        sys.excepthook = lambda *_: None
        raise
    finally:
        session.end()


def _run_source(kind: str, target: str, rest: list[str]) -> None:
    """Run a script, or the text behind ``-c``, in the module ``__main__``."""
    is_script = kind == "script"
    sys.argv = [target if is_script else "-c", *rest]
    # `python -P` (from 3.11 on) puts no folder there.
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(Path(target).resolve().parent) if is_script else ""
    main_module = ModuleType("__main__")
    main_module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main_module
    if not is_script:
        exec(compile(target, "<string>", "exec"), main_module.__dict__)  # noqa: S102 - the user's own program
        return
    if Path(target).is_dir():
        runpy.run_path(target, run_name="__main__")
        return
    file = str(Path(target).absolute())
    main_module.__file__ = file
    main_module.__loader__ = SourceFileLoader("__main__", file)
    try:
        with io.open_code(file) as stream:
            source = stream.read()
    except OSError as error:
        sys.stderr.write(f"{sys.executable}: can't open file {file!r}: [Errno {error.errno}] {error.strerror}\n")
        raise SystemExit(2) from None
    exec(compile(source, file, "exec"), main_module.__dict__)  # noqa: S102 - the user's own program


def _without_own_frames(error: BaseException) -> None:
    """Take the frames of this package and of the importer of modules out of an exception's tracebacks."""
    seen: set[int] = set()
    rest: list[Any] = [error]
    while rest:
        one = rest.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _kept(one.__traceback__)
        rest += [one.__cause__, one.__context__]


def _kept(trace: TracebackType | None) -> TracebackType | None:
    frames = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith((_HERE, "<frozen runpy")):
            frames.append(trace)
        trace = trace.tb_next
    found = None
    for one in reversed(frames):
        found = TracebackType(found, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
