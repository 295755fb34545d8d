"""A candidate: the keys, checks and properties that every kind of it has.

The sections ``Attributes`` become the descriptions in ``autotest.schema.json`` and in the documentation.
"""

from __future__ import annotations

import difflib
import math
import re
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, TypeVar, get_args

import msgspec

from ci_autotest.errors import ConfigError
from ci_autotest.program.python_names import is_module, is_name
from ci_autotest.values.dtypes import DTYPES
from ci_autotest.values.kernel_scope import KernelScope, Layout, RunMode
from ci_autotest.values.schema import Section

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

Device: TypeAlias = Literal["cpu", "cuda", "auto"]
#: Devices that need no module.
DEVICES: Final = get_args(Device)
#: Profiles of cases. ``record/draw/profiles.py`` applies them, which the parent process does not import.
PROFILES: Final = (
    "ordinary", "zero_dim", "zero_size", "size_one", "boundary", "non_contiguous", "zeros_and_ties", "large", "special",
)  # fmt: skip
_OWN_DEVICES: Final = ", ".join(DEVICES)
#: Names of candidates are command line arguments, and parts of paths, test names and lines of the comment.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Why a candidate with a process of its own is not timed.
ELSEWHERE: Final = "it runs in another process, and only candidates in the worker's own process are timed"


_KindT = TypeVar("_KindT", bound="Candidate")


class Candidate(Section, frozen=True, kw_only=True, tag_field="backend"):
    """A side that is tested.

    Attributes:
        name: Unique short name of letters, digits, ``.``, ``_``, ``+`` and ``-``, at most 64 characters. Reports and
            ``--candidate`` use it.
        backend: Its kind: how it runs a program.
        device: Device of the candidate: ``cpu``, ``cuda``, ``auto`` (a GPU if there is one), or the name of a device
            that ``module`` registers with torch, for example ``npu``. Ranks on ``cuda`` have a GPU each.
        shapes: Number of sets of sizes and choices that the cases of a test share, each time with new data, for
            frameworks that compile for every shape. 0 gives each case its own set. Null means 3 for JAX, and 0
            otherwise.
        required: Whether the run ends with exit status 4 if the candidate is not available. Otherwise it is skipped,
            and the report says why.
        speed: Whether aligned bodies are also timed at larger sizes, against the reference (a graph pass against the
            graph before it). Only for candidates that run in the worker's own process.
        forward_only: Whether the candidate has no backward pass, so that bodies run within ``torch.no_grad()`` and only
            values are compared.
        dtypes: Dtypes that the candidate takes, for example ``float16``. A case's dtypes are those of its
            floating-point and complex tensors, results included, or of all its tensors if it has none of these. Empty
            for all dtypes.
        profiles: Profiles that the candidate takes, for example ``ordinary``. Empty for all profiles.
        layouts: Layouts of the tensors that the candidate takes, asked of all tensors that a case's calls get;
            ``contiguous`` is the only one. Empty for all layouts.
    """

    #: Packages that it needs beside torch, as pip installs them.
    packages: ClassVar[tuple[str, ...]] = ()
    #: Whether it runs PyTorch's own operators and nothing else, which is what PyTorch's databases of tests are about.
    is_pytorch: ClassVar[bool] = False
    #: Whether it makes one thing of a body by compiling or exporting it, and calls that for later cases, too.
    is_compiler: ClassVar[bool] = False

    name: str
    device: str = "cpu"
    shapes: int | None = None
    required: bool = False
    speed: bool = False
    forward_only: bool | tuple[str, ...] = False
    dtypes: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    layouts: tuple[Layout, ...] = ()

    @property
    def backend(self) -> str:
        """Name of the kind."""
        return str(self.__struct_config__.tag)

    @property
    def framework(self) -> str:
        """The module that is tested, where it is another framework than PyTorch; else empty."""
        return ""

    @property
    def device_module(self) -> str:
        """The module that registers ``device`` with torch; empty if none has to."""
        return ""

    @property
    def imported_first(self) -> tuple[str, ...]:
        """Modules that the server of a finding's processes imports once, because they take seconds."""
        return ()

    @property
    def is_isolated(self) -> bool:
        """Whether the user's functions run in a host."""
        return False

    @property
    def is_sandboxed(self) -> bool:
        """Whether the user's functions run in a sandbox, and so never in a script of ours."""
        return False

    @property
    def rank_count(self) -> int:
        """Number of its ranks; 1 if it is no group."""
        return 1

    @property
    def has_rank_processes(self) -> bool:
        """Whether it is a group of ranks that are processes with PyTorch."""
        return False

    @property
    def stays_on_cpu(self) -> bool:
        """Whether it is a group of ranks that are on the CPU: simulated ones, and those of another framework."""
        return False

    @property
    def has_guard(self) -> bool:
        """Whether cases in which code outside of torch runs are guarded."""
        return False

    @property
    def checks_operators(self) -> bool:
        """Whether operators of libraries that answer calls are checked."""
        return False

    @property
    def run_mode(self) -> RunMode:
        """How bodies run: with gradients, or without; functions of ``replace`` have their own scope."""
        return "forward_only" if self.forward_only is True else "training"

    @property
    def replaced(self) -> dict[str, str]:
        """The user's function for each operator that it replaces."""
        return {}

    @property
    def scope(self) -> KernelScope:
        """What the user's functions take, call by call."""
        return KernelScope()

    @property
    def environ(self) -> dict[str, str]:
        """Environment variables of its own process."""
        return {}

    @property
    def named(self) -> tuple[str, ...]:
        """What programs may name: the user's functions and modules of which it consists."""
        return ()

    @property
    def untimed(self) -> str:
        """Why it is not timed; empty if it can be."""
        return ""

    @property
    def default_shapes(self) -> int:
        """What ``shapes`` is if it is not given."""
        return 0

    def lowered(self) -> Candidate:
        """Return what it runs as: itself. A kind of another package runs as one of those of ci-autotest."""
        return self

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with its values, and what to write instead."""
        if not _NAME.fullmatch(self.name):
            yield "has a wrong name. Write letters, digits and . _ + -, a letter or digit first, 64 at most."
        if self.shapes is not None and self.shapes < 0:
            yield f"has shapes: {self.shapes}. Give 0 or more."
        for key, given, known in (("dtypes", self.dtypes, DTYPES.keys()), ("profiles", self.profiles, PROFILES)):
            yield from unknown_names(key, given, known, "which does not exist")


def running_as(candidate: Candidate, kind: type[_KindT], **own: Any) -> _KindT:
    """Return a candidate of another kind, with the values of the keys that both have, and its own.

    Raises:
        ConfigError: A key of ci-autotest is given that the other kind has not.
    """
    known = {field.name for field in msgspec.structs.fields(kind)}
    if not issubclass(kind, DeviceCandidate):
        known.discard("module")  # of another framework, it is something else
    ours = {field.name: field.default for field in msgspec.structs.fields(BodyCandidate)}
    given = {name: getattr(candidate, name) for name in candidate.__struct_fields__}
    missing = ours.keys() - known - own.keys()
    lost = next((name for name in sorted(missing) if given.get(name, ours[name]) != ours[name]), None)
    if lost is not None:
        message = (
            f"candidate {candidate.name!r} has {lost!r}, which {candidate.backend} runs without, as "
            f"{kind.__struct_config__.tag}. Remove it."
        )
        raise ConfigError(message)
    return kind(**{**{name: value for name, value in given.items() if name in known}, **own})


def unknown_names(key: str, given: Collection[str], known: Collection[str], why: str) -> Iterator[str]:
    """Yield a fault for each name that is not known; it names the nearest."""
    for name in given:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, 1, 0.5)
            hint = f"Did you mean {nearest[0]!r}?" if nearest else f"Known: {', '.join(known)}."
            yield f"has {key}: {name[:80]!r}, {why}. {hint}"


def unknown_options(backend: str, given: Collection[str], allowed: Collection[str]) -> Iterator[str]:
    """Yield a fault for each option that is not known; it names the nearest."""
    for name in sorted(set(given).difference(allowed)):
        nearest = difflib.get_close_matches(name, allowed, 1, 0.5)
        hint = f"Did you mean {nearest[0]!r}?" if nearest else f"Known: {', '.join(sorted(allowed))}."
        yield f"has option {name!r}, which {backend} does not have. {hint}"


def wrong_values(key: str, given: object) -> Iterator[str]:
    """Yield a fault for each value that would be another one in a worker, to which it is sent as JSON."""
    match given:
        case dict():
            for name, value in given.items():
                if not isinstance(name, str):
                    yield f"has {key} with the key {str(name)[:80]!r}. Write it as text, in quotes."
                yield from wrong_values(key, value)
        case list() | tuple():
            for value in given:
                yield from wrong_values(key, value)
        case float() if not math.isfinite(given):
            yield f"has {key} with {given}. Write a finite number."
        case None | bool() | int() | float() | str():
            pass
        case _:
            yield f"has {key} with {str(given)[:80]!r}. Write numbers, text in quotes, lists or mappings."


def wrong_variables(environ: Collection[str]) -> Iterator[str]:
    """Yield a fault for each environment variable that its process cannot have."""
    for name in environ:
        if name.startswith("PYTHON"):
            yield f"sets {name}, which its process does not read, because Python starts isolated (-I). Remove it."
        elif not _VARIABLE.fullmatch(name):
            yield f"sets the variable {name[:80]!r}. Write a name such as OMP_NUM_THREADS."


class WorkerCandidate(Candidate, frozen=True, kw_only=True):
    """A candidate that runs in a worker, with the worker's own PyTorch.

    Attributes:
        load: Libraries that register operators with torch, ``build/libmylib.so``, relative to the configuration's
            folder.
        import: Modules that register operators or that a saved program may name operators of, ``mypackage.ops``.
    """

    load: tuple[str, ...] = ()
    imports: tuple[str, ...] = msgspec.field(name="import", default=())

    @property
    def named(self) -> tuple[str, ...]:
        """What programs may name: the user's functions and modules of which it consists."""
        return (*self.imports, *self.load)

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with its values, and what to write instead."""
        yield from super().faults()
        for module in self.imports:
            if not is_module(module):
                yield f"has 'import' with {module[:80]!r}. Write the name of a module, such as mypackage.ops."


class DeviceCandidate(WorkerCandidate, frozen=True, kw_only=True):
    """A candidate that runs in a worker, on any device of PyTorch.

    Attributes:
        module: The module that registers ``device`` with torch when it is imported, for example ``torch_npu``.
    """

    module: str = ""

    @property
    def device_module(self) -> str:
        """The module that registers ``device`` with torch; empty if none has to."""
        return self.module

    @property
    def named(self) -> tuple[str, ...]:
        """What programs may name: the user's functions and modules of which it consists."""
        return (*super().named, self.module)

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with its values, and what to write instead."""
        yield from super().faults()
        if self.device in DEVICES:
            # A key without an effect is refused, because its author believes that it has one.
            if self.module:
                yield (
                    f"has 'module', which backend {self.backend} does not use on device {self.device}. "
                    "Write backend: module, or device: with the name that the module registers."
                )
            return
        known = f"has device {self.device!r}, which is not one of {_OWN_DEVICES}"
        if not self.module:
            yield f"{known}. Write module: with the module that registers it, such as torch_npu, or one of these."
        elif not is_name(self.device):
            yield f"{known}. Write the name that module {self.module!r} registers, such as npu."
        elif not is_module(self.module):
            yield (
                f"has module {self.module!r}. "
                f"Write the name of the module that registers device {self.device!r}, such as torch_npu."
            )


class BodyCandidate(DeviceCandidate, frozen=True, kw_only=True):
    """A candidate that runs whole bodies in a worker."""

    forward_only: bool = False
