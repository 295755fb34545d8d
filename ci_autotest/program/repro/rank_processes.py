"""The parts of a repro whose candidate is a group of OneFlow's ranks: the script starts a process for each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.errors import ProgramError
from ci_autotest.program.codegen import body_lines, names, setup_lines
from ci_autotest.program.distribution import PARTIAL, RANKS_AT_MOST, dimension_of
from ci_autotest.program.ir import CALL_FUNCTION, TensorSpec, step_refs
from ci_autotest.program.repro.framework_code import code_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.program.ir import Program, Step
    from ci_autotest.program.recording import Recording
    from ci_autotest.program.repro.framework_code import FrameworkCode

_SBP: Final = "oneflow.sbp"
#: Before the framework is imported: importing it waits for the other ranks.
_START: Final = """RANKS = %(ranks)s
if "REPRO_RANK" not in os.environ:  # This process starts the ranks, and waits for them.
    import socket
    import subprocess
    import tempfile
    import time

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        group = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    printed = [tempfile.TemporaryFile("w+", errors="replace") for _ in range(RANKS)]
    started = [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())],
            env={**os.environ, **group, **dict.fromkeys(("REPRO_RANK", "RANK", "LOCAL_RANK"), str(rank))},
            stdout=printed[rank],
        )
        for rank in range(RANKS)
    ]
    until = time.monotonic() + %(timeout_s)s
    while any(rank.poll() is None for rank in started) and time.monotonic() < until:
        if any(rank.poll() is not None for rank in started):
            until = min(until, time.monotonic() + 15)  # the others end soon, or wait for ever
        time.sleep(0.05)
    statuses = [rank.poll() for rank in started]
    for rank in started:
        rank.kill()
        rank.wait()
    ends = ["waits for ever" if status is None else f"ended with status {status}" for status in statuses]
    for rank, output in enumerate(printed):
        output.seek(0)
        text = output.read()
        if rank == 0 or statuses[rank] != statuses[0]:
            print(text, end="")
        if statuses[rank] == 0 and "fixed: " not in text:  # the candidate ended it
            statuses[rank], ends[rank] = -1, "ended with status 0 before its end"
    if 2 in statuses or set(statuses) in ({0}, {1}):
        sys.exit(max(status for status in statuses if status is not None))
    print("misaligned: " + ", ".join(f"rank {rank} {end}" for rank, end in enumerate(ends)))
    sys.exit(1)
"""
_TENSOR: Final = '''PLACEMENT, EVERYWHERE = oneflow.placement("cpu", list(range(RANKS))), [oneflow.sbp.broadcast]


def wide(value):
    """Return float16 and bfloat16 as float32: OneFlow cannot send them to other ranks on the CPU."""
    return value.to(oneflow.float32) if value.dtype in (oneflow.float16, oneflow.bfloat16) else value


def tensor(array, dtype, requires_grad=False, lies=oneflow.sbp.broadcast):
    """Return a leaf that lies on the ranks."""
    array, dtype, is_sum = np.array(array), getattr(oneflow, dtype), lies == oneflow.sbp.partial_sum
    if is_sum:  # the ranks hold 2x and -x, whose sum is x
        with np.errstate(over="ignore"):
            double = array + array
        splits = np.isfinite(double) & (array != 0)
        nothing = np.negative(np.zeros_like(array)) if array.dtype.kind == "f" else np.zeros_like(array)
        summands = np.where(splits, double, array), np.where(splits, np.negative(array), nothing), nothing
        array = summands[min(oneflow.env.get_rank(), 2)]
    made = wide((oneflow.from_numpy(array) if array.size else oneflow.zeros(array.shape)).to(dtype))
    with oneflow.no_grad():
        made = made if is_sum else made.to_global(PLACEMENT, EVERYWHERE)
        made = made.to_global(PLACEMENT, [lies]).to(dtype).detach()
    return made.requires_grad_() if requires_grad else made


def on_ranks(function):
    """Return a function whose tensors are the same on every rank, if it makes them from no other tensor."""

    def called(*args, **kwargs):
        found = function(*args, **kwargs)
        is_local = isinstance(found, oneflow.Tensor) and not found.is_global
        return found.to_global(PLACEMENT, EVERYWHERE) if is_local or hasattr(found, "named_parameters") else found

    return called'''
_ELEMENTS: Final = """    dtype = str(value.dtype).rpartition(".")[2]
    value = wide(value.detach())
    array = (value.to_global(PLACEMENT, EVERYWHERE).to_local() if value.is_global else value).numpy()
    return np.array(array.astype("float16") if dtype == "float16" else array), dtype"""


def ranks_of(host: Mapping[str, Any]) -> int:
    """Return the number of ranks of a candidate, by its note; 0 if it is no group.

    Raises:
        ProgramError: The note has a number that cannot be.
    """
    found = host.get("ranks", 0)
    if type(found) is not int or not 0 <= found <= RANKS_AT_MOST:
        message = f"the note's number of ranks is {str(found)[:40]}, and at most {RANKS_AT_MOST} can be."
        raise ProgramError(message)
    return found


def start_text(ranks: int, timeout_s: int) -> str:
    """Return the lines that start the ranks; they take some time to find each other."""
    return _START % {"ranks": ranks, "timeout_s": 60 + 2 * timeout_s}


def rank_code() -> FrameworkCode:
    """Return how a rank makes, reads and differentiates tensors."""
    return replace(code_of("oneflow"), tensor=_TENSOR, tensor_of_view="", elements=_ELEMENTS)


def rank_setup_lines(program: Program) -> list[str]:
    """Return the statements of the setup; modules lie on all ranks before their state is loaded."""
    return setup_lines(program, "oneflow", rename=_alone(program.setup))


def rank_body_lines(program: Program) -> list[str]:
    """Return the statements of the body."""
    return body_lines(program, rename=_alone(program.body), namespace="oneflow")


def _alone(steps: Sequence[Step]) -> Callable[[str], str]:
    """Return how functions are printed: those that take no tensor give one that is the same on every rank."""
    calls = [step for step in steps if step.op == CALL_FUNCTION and step.target.startswith("oneflow.")]
    alone = {step.target for step in calls if not list(step_refs(step))}
    return lambda target: f"on_ranks({target})" if target in alone else target


def lies_text(spec: TensorSpec) -> str:
    """Return the argument that says how an input lies; empty for one that is the same on every rank."""
    text = _sbp(spec)
    return "" if text == "broadcast" else f", lies={_SBP}.{text}"


def _sbp(spec: TensorSpec) -> str:
    """Return how an input lies in OneFlow's words."""
    placement = spec.distribution.placements[0] if spec.distribution is not None else ""
    cut = dimension_of(placement)
    if cut is not None:
        return f"split({cut})"
    return "partial_sum" if placement == PARTIAL else "broadcast"


def global_lines(recording: Recording, ranks: int) -> list[str]:
    """Return comments that say how each input lies on the ranks, with the shape of each part."""
    program = recording.program
    named = names(program)
    lines = [f"# on {ranks} ranks; the code below is the reference's"]
    for index, spec in program.inputs.items():
        if named[index].isprintable():
            parts = _parts(spec, ranks)
            held = f"{parts[0]} each" if parts.count(parts[0]) == ranks else ", ".join(map(str, parts))
            lines.append(f"# {named[index]} lies as {_sbp(spec)}: {held}")
    return lines


def _parts(spec: TensorSpec, ranks: int) -> list[list[int]]:
    """Return the shape of each rank's part: OneFlow gives the first ranks one row more where they do not divide."""
    cut = dimension_of(spec.distribution.placements[0]) if spec.distribution is not None else None
    if cut is None or cut >= len(spec.shape):
        return [list(spec.shape)] * ranks
    size, more = divmod(spec.shape[cut], ranks)
    return [[*spec.shape[:cut], size + (rank < more), *spec.shape[cut + 1 :]] for rank in range(ranks)]
