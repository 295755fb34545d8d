"""Check that a program is well-formed: everything that comes from outside passes here before it is run or printed."""

from __future__ import annotations

import keyword
import math
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import ProgramError
from ci_autotest.program.distribution import fits, is_mesh, is_placement
from ci_autotest.program.ir import (
    ARRAY,
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    EXPECT,
    GET_ATTR,
    HOOK,
    HOOKED,
    LOAD,
    LOADS_STATE,
    OPCODES,
    OUTPUT,
    PLACEHOLDER,
    REGISTERS,
    SAVE,
    UNHOOKED,
    Copy,
    Device,
    DType,
    FrameworkConstant,
    List,
    Mapping_,
    Ref,
    TensorSpec,
    cotangent_key,
    is_mode,
    parts,
    step_refs,
)
from ci_autotest.program.module_calls import is_module_path, is_place
from ci_autotest.program.python_names import is_name
from ci_autotest.program.refusal import is_refusal
from ci_autotest.program.targets import (
    is_attribute,
    is_function,
    is_method,
    is_module,
    is_overload,
    is_own,
    is_settable,
    permits_none,
)
from ci_autotest.values.dtypes import DTYPES, ITEM_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from ci_autotest.program.ir import Argument, ModuleCall, Program, Step
    from ci_autotest.program.recording import Recording

#: Constants that a program may name.
CONSTANTS: Final = frozenset({
    "torch.contiguous_format", "torch.channels_last", "torch.channels_last_3d", "torch.preserve_format",
    "torch.strided",
    "torch.sparse_coo",
    "torch.sparse_csr",
})  # fmt: skip
#: Frameworks that this package knows; a program from outside may name them whatever the configuration says.
FRAMEWORKS: Final = frozenset({"oneflow", "paddle", "jax", "mindspore"})
#: Frameworks whose functions have other names than torch's.
OWN_NAMED: Final = frozenset({"paddle", "jax", "mindspore"})
_OF_TENSORS: Final = frozenset({CALL_METHOD, CALL_MODULE, GET_ATTR})
#: Elements of one tensor that a saved program may ask for.
ELEMENTS_AT_MOST: Final = 1 << 28


def check_program(program: Program, is_permitted: Callable[[str], bool] = permits_none) -> None:
    """Refuse a program that is not well-formed.

    Args:
        program: The program.
        is_permitted: Whether it may name an operator of the user's; by default it may name none.

    Raises:
        ProgramError: An unknown opcode, a target off the allow list, a reference that is not to an
            earlier step, a missing or second output, or a placeholder whose view leaves its
            storage.
    """
    if not program.body or program.body[-1].op != OUTPUT:
        message = "the program has no output: its last step must be one."
        raise ProgramError(message)

    def is_called(target: str) -> bool:
        return is_function(target) or (is_own(target) and is_permitted(target))

    for index, step in enumerate(program.steps):
        # First, because the checks below look up the steps that this one refers to.
        _check_step(step, index, is_last=index == len(program.steps) - 1, is_called=is_called)
        # A backend calls whatever the value is, so without this a program could call any object.
        if step.op == CALL_MODULE and not is_module(program.steps[step_refs(step)[0].index]):
            message = f"step {index} calls a value that is not a module."
            raise ProgramError(message)
        _check_uses(step, index, program.steps)
        if step.target == LOADS_STATE and not _has_printable_names(step):
            message = f"step {index} loads a state with a name that cannot be printed."
            raise ProgramError(message)
        if step.target == "register_hook":
            _check_hook(step, index, program.steps)
        if step.target == UNHOOKED and not _removes(step, program.steps):
            message = f"step {index} removes a hook that no step registers."
            raise ProgramError(message)
        if step.target == EXPECT and not _is_expectation(step, program.steps):
            message = f"step {index} expects something that is no input, or with a tolerance that is no number."
            raise ProgramError(message)
        if step.in_setup != (index < program.start):
            message = f"step {index} has in_setup={step.in_setup}, but is in the other part of the program."
            raise ProgramError(message)


def check_host_program(program: Program, module: str, calls: Collection[str]) -> None:
    """Refuse a program in a framework's own words that is not well-formed, or calls what no table names.

    Args:
        program: Read from the note of a recording, which anyone may have written.
        module: The framework's.
        calls: The functions and adapters that the framework's table names.

    Raises:
        ProgramError: As ``check_program``; a target is allowed if it is one of ``calls``, an operator of Python's own,
            or, in a module with torch's names, what torch calls it.
    """
    is_like_torch = module not in OWN_NAMED

    def is_called(target: str) -> bool:
        owner = target.partition(".")[0]
        # Its functions have torch's names, so torch's allow list holds for them too.
        if is_like_torch and owner == module.partition(".")[0]:
            return target in calls or is_function(f"torch{target.removeprefix(module)}")
        return target in calls or (owner in {"operator", "builtins"} and is_function(target))

    if not program.body or program.body[-1].op != OUTPUT:
        message = f"the program for {module} has no output: its last step must be one."
        raise ProgramError(message)
    for index, step in enumerate(program.steps):
        # The table of such a framework names functions only: nothing says which methods are safe.
        if step.op in _OF_TENSORS and not is_like_torch:
            message = f"step {index} is a {step.op}: {module} is called by its functions alone."
            raise ProgramError(message)
        _check_step(step, index, is_last=index == len(program.steps) - 1, is_called=is_called)
        if not all(is_mode(mode) or is_refusal(mode) for mode in step.modes):
            message = f"step {index} has a mode that is not known."
            raise ProgramError(message)
        if step.spec is not None:
            _check_spec(step.target, step.spec)


def check_recording(recording: Recording, is_permitted: Callable[[str], bool] = permits_none) -> None:
    """Refuse a recording whose data do not match its program; ``is_permitted`` as for ``check_program``.

    Raises:
        ProgramError: As ``check_program``, or data are missing, have another size, or belong to no placeholder.
    """
    check_program(recording.program, is_permitted)
    wanted = wanted_specs(recording)
    foreign = sorted(recording.tensors.keys() - wanted.keys())
    if foreign:
        message = f"the tensor file holds {foreign[0]!r}, which no placeholder names."
        raise ProgramError(message)
    for key, spec in wanted.items():
        data = recording.tensors.get(key)
        size = spec.storage_size * ITEM_SIZE[spec.dtype]
        if data is None or len(data) != size:
            got = "missing" if data is None else f"{len(data)} bytes"
            message = (
                f"the data of {key!r} are {got}; {spec.dtype} with {spec.storage_size} elements takes {size} bytes."
            )
            raise ProgramError(message)


def wanted_specs(recording: Recording) -> dict[str, TensorSpec]:
    """Return the spec of every tensor that a recording reads, by key. Each view stays within its storage.

    Raises:
        ProgramError: A placeholder has no spec, or an impossible one.
    """
    wanted: dict[str, object] = {
        step.target: step.args[0] for step in recording.program.steps if step.op == PLACEHOLDER
    }
    wanted |= {cotangent_key(i): spec for i, spec in recording.program.cotangent_specs.items()}
    wanted |= recording.expected
    checked = {}
    for key, spec in wanted.items():
        if not isinstance(spec, TensorSpec):
            message = f"placeholder {key!r} has no tensor spec."
            raise ProgramError(message)
        _check_spec(key, spec)
        # A repro reshapes these data, which is right for a whole contiguous tensor only.
        if key in recording.expected and not spec.is_contiguous:
            message = f"{key[:80]!r}, which the reference gave, is not a whole contiguous tensor: {spec}."
            raise ProgramError(message)
        checked[key] = spec
    return checked


def check_facts(facts: Mapping[str, Argument]) -> None:
    """Refuse facts that are not plain values, because they are printed as code.

    Raises:
        ProgramError: One refers to a step, or holds a tensor.
    """
    for key, fact in facts.items():
        if not _is_plain(fact):
            message = f"the fact {key[:40]!r} is not a plain value."
            raise ProgramError(message)


def _is_plain(fact: Argument) -> bool:
    kinds = (tuple, Mapping_, bool, int, float, complex, str, type(None))
    return all(isinstance(part, kinds) for part in parts(fact))


def _check_hook(step: Step, index: int, steps: Sequence[Step]) -> None:
    """Refuse a hook whose steps are not the ones directly before its registration."""
    first = step.args[1] if len(step.args) == 3 else None  # noqa: PLR2004 - receiver, gradient, result
    waits = steps[first.index : index] if isinstance(first, Ref) else ()
    if not waits or waits[0].target != HOOKED or any(HOOK[0] not in item.modes for item in waits):
        message = f"step {index} registers a hook whose steps are not directly before it."
        raise ProgramError(message)


def _has_printable_names(step: Step) -> bool:
    """Whether the names in a state have no line break, because comments of a script show them as they are."""
    return all(name.isprintable() for each in parts(*step.args) if isinstance(each, Mapping_) for name, _ in each.items)


def _removes(step: Step, steps: Sequence[Step]) -> bool:
    held = step.args[0] if len(step.args) == 1 else None
    return isinstance(held, Ref) and steps[held.index].target == "register_hook" and REGISTERS[0] in step.modes


def _check_uses(step: Step, index: int, steps: Sequence[Step]) -> None:
    """Refuse a step that uses an array or bytes, and one that saves or loads anything but tensors in memory."""
    targets = {steps[ref.index].target: ref.index for ref in step_refs(step)} if step.op != OUTPUT else {}
    if ARRAY in targets:
        # Methods of an array can write files, for example `dump`.
        message = f"step {index} uses the array of step {targets[ARRAY]}: an array can only be an output."
        raise ProgramError(message)
    if SAVE in targets and step.target != LOAD:
        message = f"step {index} uses the bytes of step {targets[SAVE]}: only {LOAD} takes them."
        raise ProgramError(message)
    if step.target in {SAVE, LOAD} and not _is_in_memory(step, steps):
        message = f"step {index}, {step.target}, is not of a list of tensors in memory."
        raise ProgramError(message)


def _is_in_memory(step: Step, steps: Sequence[Step]) -> bool:
    """Whether a step saves a list of values to memory, or loads what such a step has saved."""
    if step.op != CALL_FUNCTION or len(step.args) != 1:
        return False
    (given,) = step.args
    if step.target == SAVE:
        return isinstance(given, List) and all(isinstance(item, Ref) for item in given.items) and not step.kwargs
    places = {key: value for key, value in step.kwargs if key == "map_location" and isinstance(value, Device)}
    return isinstance(given, Ref) and steps[given.index].target == SAVE and len(places) == len(step.kwargs)


def _is_expectation(step: Step, steps: Sequence[Step]) -> bool:
    value, expected, *bounds = (*step.args, *[None] * 4)[:4]
    is_input = isinstance(expected, Ref) and steps[expected.index].op == PLACEHOLDER
    is_bounded = bounds == [None, None] or all(isinstance(each, float) and 0 <= each < math.inf for each in bounds)
    return len(step.args) == 4 and isinstance(value, Ref) and is_input and is_bounded and not step.in_setup  # noqa: PLR2004 - as recorded


def _check_step(step: Step, index: int, *, is_last: bool, is_called: Callable[[str], bool] = is_function) -> None:
    if step.op not in OPCODES or (step.op == OUTPUT) != is_last:
        message = (
            f"step {index} has opcode {step.op!r}, which is not allowed there. Use {', '.join(OPCODES)}, output last."
        )
        raise ProgramError(message)
    if not (_is_allowed(step, is_called) and _is_module_allowed(step, is_called)):
        message = (
            f"step {index} names target {step.target[:80]!r}, which is not on the allow list of {step.op}: "
            f"only operators of torch are run{_unless_named(step)}."
        )
        raise ProgramError(message)
    for ref in step_refs(step):
        if not 0 <= ref.index < index:
            message = f"step {index} refers to step {ref.index}, which is not before it."
            raise ProgramError(message)
    for key, _ in step.kwargs:
        # Keywords are printed into code as they are.
        if not key.isidentifier() or keyword.iskeyword(key):
            message = f"step {index} has a keyword argument {key[:60]!r}, which is not a name."
            raise ProgramError(message)
    for argument in parts(*step.args, *(value for _, value in step.kwargs)):
        if isinstance(argument, FrameworkConstant) and argument.target not in CONSTANTS:
            message = f"step {index} names constant {argument.target[:80]!r}, which is not on the allow list."
            raise ProgramError(message)
        if isinstance(argument, DType) and argument.name not in DTYPES:
            message = f"step {index} names dtype {argument.name[:80]!r}. Known: {', '.join(DTYPES)}."
            raise ProgramError(message)


def _unless_named(step: Step) -> str:
    """Return what makes an operator of the user's run."""
    if step.op not in {CALL_FUNCTION, CALL_MODULE} or not is_own(step.target):
        return ""
    if is_overload(step.target):
        return ", and overloads of PyTorch's dispatcher if `paths` of the autotest.yml here has `builtin:overloads`"
    return (
        ", and operators that the autotest.yml here names. If it is yours, add it to `replace`, or its module to "
        "`import`, of a candidate"
    )


def _is_allowed(step: Step, is_called: Callable[[str], bool]) -> bool:
    if step.op in {PLACEHOLDER, OUTPUT}:
        return step.target.isidentifier() and (step.op == OUTPUT or len(step.args) == 1)
    if step.op == CALL_FUNCTION:
        return is_called(step.target) and _names_an_attribute(step)
    # Modules cannot be copied, and a hook on a copy would never run, because nothing else uses the copy.
    is_plain = step.op == CALL_MODULE or step.target == "register_hook"
    if not step.args or not isinstance(step.args[0], Ref if is_plain else Ref | Copy):
        return False
    if step.op == CALL_METHOD:
        # As a method `register_hook` is refused: only a recording marks the step, whose hook is made of steps.
        return is_method(step.target) or (step.target == "register_hook" and REGISTERS[0] in step.modes)
    if step.op == CALL_MODULE:
        return is_called(step.target)
    return step.op == GET_ATTR and is_attribute(step.target)


#: What a class of torch's is constructed with where a pass gets the user's modules.
_PLAIN: Final = (bool, int, float, str, tuple, type(None))


def _is_module_allowed(step: Step, is_called: Callable[[str], bool]) -> bool:
    """Whether the module that a step was recorded in can be constructed and printed."""
    module = step.module
    if module is None:
        return True
    return (
        (not module.target or (module.target.startswith("torch.nn.") and is_called(module.target)))
        and all(is_name(key) for key, _ in module.kwargs)
        and all(isinstance(each, _PLAIN) for each in parts(*(value for _, value in (*module.kwargs, *module.given))))
        and all(map(is_module_path, (module.path, *filter(None, module.states))))
        and all(map(is_place, _places_of(module)))
    )


def _places_of(module: ModuleCall) -> Iterator[str]:
    yield from (place for place, _ in module.given)
    yield from (place for source in module.sources for place in source.split(" "))
    yield module.result or ""


def _names_an_attribute(step: Step) -> bool:
    """Whether a step that reads or sets an attribute names an allowed one; true for any other step."""
    allowed = _ATTRIBUTE_STEPS.get(step.target)
    if allowed is None:
        return True
    count, is_allowed = allowed
    return len(step.args) == count and isinstance(step.args[1], str) and is_allowed(step.args[1])


#: For each step that reads or sets an attribute: its number of arguments, and which attribute names are allowed.
_ATTRIBUTE_STEPS: Final[dict[str, tuple[int, Callable[[str], bool]]]] = {
    "builtins.getattr": (2, is_attribute),
    "builtins.setattr": (3, is_settable),
}


def _check_spec(key: str, spec: TensorSpec) -> None:
    sizes = (*spec.shape, spec.offset, spec.storage_size)
    if spec.dtype not in DTYPES or len(spec.shape) != len(spec.strides) or any(n < 0 for n in (*sizes, *spec.strides)):
        message = f"placeholder {key!r} has no valid spec: {spec}."
        raise ProgramError(message)
    on = spec.distribution
    if on is not None and not (
        is_mesh(on.mesh) and all(map(is_placement, on.placements)) and fits(on, len(spec.shape))
    ):
        message = f"placeholder {key!r} cannot lie on ranks like this: {on!r:.200}."
        raise ProgramError(message)
    if not all(map(is_placement, spec.placements)):
        message = f"placeholder {key!r} has no placements: {spec.placements!r:.200}."
        raise ProgramError(message)
    last = spec.offset + sum((size - 1) * stride for size, stride in zip(spec.shape, spec.strides, strict=True))
    count = math.prod(spec.shape)
    # The elements count too: with strides of 0 a view has more of them than its storage, and a copy has them all.
    if max(spec.storage_size, count) > ELEMENTS_AT_MOST:
        message = f"placeholder {key!r} has {count:,} elements; {ELEMENTS_AT_MOST:,} are allowed."
        raise ProgramError(message)
    # An empty view reads nothing, wherever it begins.
    if 0 not in spec.shape and last >= spec.storage_size:
        message = f"placeholder {key!r} reaches element {last} of a storage of {spec.storage_size}."
        raise ProgramError(message)
