"""The note of a recording: its origin, and what a repro needs of the candidate. It is read strictly, once.

A note from outside is refused as a whole if a value has another type than it should, or names as a function or a module
what can be none, because scripts print these names as code.
"""

from __future__ import annotations

import itertools
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import msgspec

from ci_autotest.errors import ProgramError
from ci_autotest.program.distribution import RANKS_AT_MOST
from ci_autotest.program.python_names import is_module, is_name, is_path, is_pythons
from ci_autotest.values.kernel_scope import RunMode
from ci_autotest.values.tolerance import Strictness


def _dict() -> Any:
    return msgspec.field(default_factory=dict)


class ReplayRules(msgspec.Struct, frozen=True):
    """How a program's results are compared, without the file of its test.

    Attributes:
        rtol: Allowed difference relative to the reference; ``None`` for the default of the dtype.
        atol: Allowed absolute difference, in the unit of the elements; ``None`` likewise.
        check_dtype: Whether dtypes must be equal.
    """

    rtol: float | None = None
    atol: float | None = None
    check_dtype: bool = True


class KindNote(msgspec.Struct, frozen=True, kw_only=True, tag_field="backend", tag=""):
    """What a repro needs of a kind of candidate, besides what all need; of none, nothing.

    Attributes:
        device_module: The module that registers the device with torch.
        load: Libraries that register operators with torch.
        import: Modules that do.
    """

    device_module: str = ""
    load: tuple[str, ...] = ()
    imports: tuple[str, ...] = msgspec.field(name="import", default=())

    @property
    def functions(self) -> tuple[str, ...]:
        """Dotted paths of the user's functions and classes that it calls."""
        return ()

    def check(self) -> None:
        """Refuse names that are never printed as code.

        Raises:
            ProgramError: There is one.
        """
        # Importing a module runs it, and none of the standard library registers a device or an operator.
        for module in filter(None, (self.device_module, *self.imports)):
            if not is_module(module) or is_pythons(module):
                raise refused(module, "a module of the user's")


class TorchNote(KindNote, frozen=True, kw_only=True, tag="torch"):
    """Eager PyTorch on a device."""


class CompileNote(KindNote, frozen=True, kw_only=True, tag="torch.compile"):
    """``torch.compile``, with its arguments."""

    options: dict[str, Any] = _dict()

    def check(self) -> None:
        """Refuse names that are never printed as code."""
        super().check()
        for name in self.options:
            if not is_name(name):
                raise refused(name, "an argument of torch.compile")


class TransformNote(KindNote, frozen=True, kw_only=True):
    """A user's function that takes the graph of a body.

    Attributes:
        transform: Its dotted path.
    """

    transform: str = ""

    @property
    def functions(self) -> tuple[str, ...]:
        """Dotted paths of the user's functions and classes that it calls."""
        return (self.transform,) if self.transform else ()

    def check(self) -> None:
        """Refuse names that are never printed as code."""
        super().check()
        if self.transform and not is_path(self.transform):
            raise refused(self.transform, "a function")


class FxNote(TransformNote, frozen=True, kw_only=True, tag="fx"):
    """A graph pass.

    Attributes:
        takes_inputs: Whether it takes example inputs, too.
    """

    takes_inputs: bool = False


class OnnxRuntimeNote(KindNote, frozen=True, kw_only=True, tag="onnxruntime"):
    """PyTorch's exporter, with its arguments, and ONNX Runtime."""

    options: dict[str, bool | int] = _dict()


class ExportNote(TransformNote, frozen=True, kw_only=True, tag="export"):
    """An exporter or a runtime of the user's, whose function makes a callable of an exported body.

    Attributes:
        options: Keyword arguments of the function.
        takes: ``program`` or ``module``.
        dynamic: Whether bodies are exported for all sizes.
    """

    options: dict[str, Any] = _dict()
    takes: str = "program"
    dynamic: bool = False

    def check(self) -> None:
        """Refuse names that are never printed as code."""
        super().check()
        for name in self.options:
            if not is_name(name):
                raise refused(name, f"an argument of {self.transform}")


class SubstituteNote(KindNote, frozen=True, kw_only=True, tag="substitute"):
    """Functions in place of operators.

    Attributes:
        renames: The user's function for each function target of the program.
        spellings: For each function, the torch functions that it stands for wherever they are called.
        classes: The user's class for each class of modules that it replaces.
        state: For such a class, the user's function that copies the state.
    """

    renames: dict[str, str] = _dict()
    spellings: dict[str, list[str]] = _dict()
    classes: dict[str, str] = _dict()
    state: dict[str, str] = _dict()

    @property
    def functions(self) -> tuple[str, ...]:
        """Dotted paths of the user's functions and classes that it calls."""
        return (*self.spellings, *self.classes.values(), *self.state.values())

    def check(self) -> None:
        """Refuse names that are never printed as code."""
        super().check()
        for path in (*self.spellings, *itertools.chain(*self.spellings.values())):
            if not is_path(path):
                raise refused(path, "a function")
        for path in self.renames.values():
            if path not in self.spellings:
                raise refused(path, "one of its functions")
        for path in (*self.classes.values(), *self.state.values()):
            if not is_path(path) or is_pythons(path):
                raise refused(path, "a class or function of the user's")


class ModuleNote(KindNote, frozen=True, kw_only=True, tag="module"):
    """Another framework."""


class DTensorNote(KindNote, frozen=True, kw_only=True, tag="dtensor"):
    """Ranks over which tensors are distributed.

    Attributes:
        processes: Whether each rank is a process.
        starts_ranks: Whether the repro starts a process for each rank, because simulated ones do not show it.
    """

    processes: bool = False
    starts_ranks: bool = False


class PlanNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How ranks share the batch of a program, which a repro joins alike.

    Attributes:
        rows: Rows of the batch that each rank has.
        joins: How an output is joined, by its position: its kind, and the dimension of the rows.
        sizes: Rows of each rank in the gradient that is put into an output, by the output's position.
        weights: The part of the loss that each rank has, by the index of a backward pass.
        of_slices: What belongs to the rows of a rank by its definition, and is not compared: a step and a name in it.
        independent: Whether the values are compared; if not, only whether the ranks agree.
        unused: Whether a parameter has no part in the loss.
        sized: Steps that hold the number of rows.
        slices: Whether rows depend on one another, so that a rank is held against one process with its rows.
    """

    rows: Annotated[list[int], msgspec.Meta(min_length=1)]
    joins: list[tuple[int, Literal["rows", "same", "mean", "sum", "each"], int]]
    sizes: list[tuple[int, list[int]]]
    weights: list[tuple[int, list[float]]]
    of_slices: list[tuple[int, str]]
    independent: bool
    unused: bool
    sized: list[int] = msgspec.field(default_factory=list)
    slices: bool = False


class TrainingNote(KindNote, frozen=True, kw_only=True):
    """Ranks that share the batch of a module.

    Attributes:
        wrap: The user's wrapper, ``module:function``.
        plan: How the ranks share the batch; ``None`` if it cannot be shared.
    """

    wrap: str = ""
    plan: PlanNote | None = None

    @property
    def functions(self) -> tuple[str, ...]:
        """Dotted paths of the user's functions and classes that it calls."""
        return (self.wrapper,) if self.wrap else ()

    @property
    def wrapper(self) -> str:
        """The dotted path of the user's wrapper; empty if there is none."""
        return self.wrap.replace(":", ".")

    def check(self) -> None:
        """Refuse names that are never printed as code."""
        super().check()
        if self.wrap and not is_path(self.wrapper):
            raise refused(self.wrap, "module:function")


class DdpNote(TrainingNote, frozen=True, kw_only=True, tag="ddp"):
    """Ranks with ``DistributedDataParallel``."""


class FsdpNote(TrainingNote, frozen=True, kw_only=True, tag="fsdp"):
    """Ranks with ``fully_shard``."""


AnyKindNote: TypeAlias = (
    KindNote
    | TorchNote
    | CompileNote
    | FxNote
    | OnnxRuntimeNote
    | ExportNote
    | SubstituteNote
    | ModuleNote
    | DTensorNote
    | DdpNote
    | FsdpNote
)
_KINDS: Final = {str(kind.__struct_config__.tag): kind for kind in get_args(AnyKindNote)}


class HostNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a host ran; ``repro/host_values`` decodes and checks it.

    Attributes:
        module: Module of the framework.
        program: The program in its framework's words, as JSON values.
        moved: For each step of the recording: where the host's program has its value; -1 for nowhere.
        parameters: Parameters that the host's program has as values: a step, a name in it, and where.
        version: Version of the framework.
        python: The interpreter.
        on: Version of Python.
        graph: Whether it ran as a graph.
        ranks: Number of ranks; 0 if it was no group.
    """

    module: str = ""
    program: list[Any] = msgspec.field(default_factory=list)
    moved: list[int] = msgspec.field(default_factory=list)
    parameters: list[tuple[int, str, int]] = msgspec.field(default_factory=list)
    version: str = ""
    python: str = ""
    on: str = ""
    graph: bool = False
    ranks: Annotated[int, msgspec.Meta(ge=0, le=RANKS_AT_MOST)] = 0


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The origin of a recording, and what its repro and its replay need.

    Attributes:
        candidate: Name of the candidate.
        side: What a repro needs of the candidate's kind; not a key of the file, which has the keys of both.
        device: The candidate's device.
        reference_device: The reference's.
        run_mode: How bodies run: with gradients, or without.
        env: Environment variables of the candidate's process.
        torch: Version of torch.
        libraries: Versions of others.
        host: What a host ran; ``None`` if the candidate has none.
        rules: How results are compared; ``None`` for the defaults.
        strictness: As the configuration has it.
        kind: Kind of the finding; empty if there is none yet.
        operator: The finding's operator.
        test: The test of which the program is.
        case: The case of that test.
        attempt: Its attempt.
        profile: The case's profile.
        draws: What the case drew, as the recorder keeps it.
        seed: Root seed of the run.
        folders: Folders of the user's modules, relative to where the run was started.
        case_timeout_s: Seconds that a case may take.
        output: The report's folder, as the user wrote it; not saved.
    """

    candidate: str = ""
    side: KindNote = KindNote()
    device: str = "cpu"
    reference_device: str = "cpu"
    run_mode: RunMode = "training"
    env: dict[str, str] = _dict()
    torch: str = ""
    libraries: dict[str, str] = _dict()
    host: HostNote | None = None
    rules: ReplayRules | None = None
    strictness: Strictness = "tolerance"
    kind: str = ""
    operator: str = ""
    test: str = ""
    case: int | None = None
    attempt: int | None = None
    profile: str = ""
    draws: list[list[Any]] = msgspec.field(default_factory=list)
    seed: int | None = None
    folders: tuple[str, ...] = ()
    case_timeout_s: float | None = None
    output: str = ""

    @property
    def backend(self) -> str:
        """Name of the candidate's kind; empty without a candidate."""
        return str(self.side.__struct_config__.tag)


def plain_note(note: Note) -> dict[str, Any]:
    """Return a note as plain values, in which the keys of the kind are beside the others."""
    plain: dict[str, Any] = msgspec.to_builtins(note)
    plain.pop("side", None)
    own = {key: value for key, value in msgspec.to_builtins(note.side).items() if value != ""}
    return {**plain, **own}


def note_of(plain: dict[str, Any]) -> Note:
    """Return the checked note of plain values; keys that are unknown, or belong to another kind, say nothing.

    Raises:
        ProgramError: A value has the wrong type, or names what is never printed as code.
    """
    backend = plain.get("backend", "")
    kind = _KINDS.get(backend) if isinstance(backend, str) else None
    if kind is None:
        message = f"the note of the program has backend {str(backend)[:60]!r}, which this version does not know."
        raise ProgramError(message)
    try:
        side = msgspec.convert({**plain, "backend": backend}, kind)
        note = msgspec.convert({key: value for key, value in plain.items() if key != "side"}, Note)
    except msgspec.ValidationError as error:
        message = f"the note of the program is damaged or edited: {error}."
        raise ProgramError(message) from error
    side.check()
    for bound in (note.rules.rtol, note.rules.atol) if note.rules is not None else ():
        if bound is not None and not bound >= 0:
            message = f"the note of the program allows a difference of {bound}."
            raise ProgramError(message)
    return msgspec.structs.replace(note, side=side)


def refused(name: str, what: str) -> ProgramError:
    """Return the error for a name of a note that cannot be what it stands for."""
    return ProgramError(f"the note names {name[:60]!r}, which is not {what}: it is never printed as code.")
