"""The input ``options``: options of ``ci-autotest run`` that are no inputs, and two of the action's own, one a line.

A line becomes one argument as it is written, so that no value can become another option. Pure functions; the standard
library only.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from action.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Options with few values, also those that are inputs. The first value is the default of the action's own.
CHOICES = {
    "compat": ("oneflow",),
    "device": ("auto", "cpu", "cuda"),
    "executor": ("local", "ray"),
    "fail-on": ("misaligned", "new", "never", "flaky", "leniency", "slower"),
    "strictness": ("tolerance", "measured", "ulp", "bitwise"),
    "torch": ("auto", "cpu", "default"),
    "cache": ("true", "false"),
}
#: Options that are the action's and not the command's.
OF_ACTION = ("torch", "cache")
#: Options that a line may have, one of them without a value.
OPTIONS = ("compat", "executor", "maxfail", "memory", "set", "speed", "strictness", "workers", *OF_ACTION)
FLAG = "speed"
#: Options in mode `verify`: without a value, and those that can be repeated.
VERIFY_FLAGS = ("forward-only", "public", "no-authentic")
VERIFY_REPEATED = ("allow", "include")
#: Keys of the configuration that `--set` may have: those with neither an option nor an input.
SETTINGS = ("case-timeout", "slower-factor", "reference", "candidates", "tolerances", "known", "opinfo")
#: What the command line takes and the action has as an input.
INPUTS = ("paths", "config", "candidate", "cases", "budget", "seed", "shard", "device", "baseline", "fail-on", "output")
#: What a person at a terminal sees and runs; a job runs everything and writes a report.
OF_TERMINAL = ("json", "lf", "quiet", "verbose", "warm")
#: How each of them is given.
_FORMS = {
    **{name: f"the input '{name}'" for name in INPUTS},
    **{name: f"--{name}" for name in OPTIONS},
    **{name: f"--set={name}" for name in SETTINGS},
}


def parse_options(lines: Iterable[str], *, of_verify: bool = False) -> dict[str, str]:
    """Return the lines by the option or the key of the configuration that each of them sets.

    Args:
        lines: The input's lines.
        of_verify: Whether they are options of ``ci-autotest verify``.

    Raises:
        StepError: A line is no option that may be given here, or two set the same.
    """
    found: dict[str, str] = {}
    for line in lines:
        name = _verify_option(line) if of_verify else _set_by(line)
        _refuse(line, f"but another line sets '{name}': remove one of the two.", when=name in found)
        found[name] = line
    return found


def value_of(options: Mapping[str, str], name: str) -> str:
    """Return the value of one of the action's own options."""
    return options.get(name, f"--{name}={CHOICES[name][0]}").partition("=")[2]


def _verify_option(line: str) -> str:
    """Return what a line sets; an option that can be repeated sets something else with each value."""
    name, equals, value = line[2:].partition("=")
    known = line.startswith("--") and name in {*VERIFY_FLAGS, *VERIFY_REPEATED, *OF_ACTION}
    names = ", ".join(f"--{each}" for each in (*VERIFY_FLAGS, *VERIFY_REPEATED))
    _refuse(line, f"which is no option in mode 'verify': write one of {names}.", when=not known)
    if name in OF_ACTION:
        return _set_by(line)
    is_flag = name in VERIFY_FLAGS
    _refuse(line, f"but --{name} has no value: write --{name}.", when=is_flag and equals != "")
    _refuse(line, f"which has no value: write --{name}=VALUE.", when=not is_flag and not value.strip())
    return name if is_flag else f"{name}={value}"


def _set_by(line: str) -> str:
    name, equals, value = line[2:].partition("=")
    is_option = line.startswith("--") and name != "" and not any(map(str.isspace, name))
    _refuse(line, "which is no option: write one --name=value a line.", when=not is_option)
    _refuse(line, "which the action decides: remove it.", when=name in OF_TERMINAL)
    _refuse(line, f"which is no option here: {_nearest(name)}", when=name not in OPTIONS)
    if name == "set":
        name, equals, value = value.partition("=")
        name = name.strip().replace("_", "-")
        _refuse(line, f"which --set does not reach: {_nearest(name)}", when=name not in SETTINGS)
    _refuse(line, f"but --{name} has no value: write --{name}.", when=name == FLAG and equals != "")
    _refuse(line, f"which has no value: write {_FORMS[name]}=VALUE.", when=name != FLAG and not value.strip())
    few = CHOICES.get(name, (value,))
    _refuse(line, f"but '{value}' does not exist: give one of {', '.join(few)}.", when=value not in few)
    return name


def _nearest(name: str) -> str:
    """Return which option, key or input was meant."""
    near = get_close_matches(name.replace("_", "-"), _FORMS, 1)
    return f"did you mean {_FORMS[near[0]]}?" if near else f"write one of {', '.join(f'--{each}' for each in OPTIONS)}."


def _refuse(line: str, why: str, *, when: bool) -> None:
    refuse(f"the input 'options' has '{line[:100]}', {why}", when=when)
