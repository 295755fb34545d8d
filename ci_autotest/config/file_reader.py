"""Read ``autotest.yml`` strictly: an unknown key is an error that names the nearest known one."""

from __future__ import annotations

import difflib
import re
import stat
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from ci_autotest.config.validation import check, check_candidate
from ci_autotest.config.values import FILE_NAME, Config, Known, OpInfo, Reference, ToleranceRule
from ci_autotest.errors import ConfigError, error_text
from ci_autotest.kinds import KINDS, AnyCandidate, Candidate, ModuleCandidate
from ci_autotest.values.entry_points import KINDS as PLUGINS
from ci_autotest.values.entry_points import entry_of, loaded, names_in
from ci_autotest.values.result import FAIL_ON
from ci_autotest.values.schema import schema_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

#: Largest file, and most values in it after its aliases are expanded.
BYTES_AT_MOST: Final = 256 << 10
VALUES_AT_MOST: Final = 100_000


def read(path: Path, *, has_all_kinds: bool = True) -> Config:
    """Return the configuration of a file.

    Args:
        path: The file.
        has_all_kinds: Whether the packages are here that add kinds. If not, rows of unknown kinds are left out.

    Raises:
        ConfigError: It cannot be read, is not YAML, has an unknown key or a value of the wrong type.
    """
    try:
        text = _text(path)
    except (OSError, ValueError) as error:
        message = f"configuration {str(path)[:200]} cannot be read: {getattr(error, 'strerror', None) or error}."
        raise ConfigError(message) from error
    plain = parse(text, f"configuration {path}")
    plain = {} if plain is None else plain
    if not has_all_kinds and isinstance(plain, dict) and isinstance(plain.get("candidates"), list):
        plain["candidates"] = [row for row in plain["candidates"] if isinstance(row, dict) and _is_known(row)]
    config = decode(plain, str(path))
    return msgspec.structs.replace(config, candidates=tuple(_placed(each, path.parent) for each in config.candidates))


def _text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        ValueError: It is not a regular file, is too large, or is not UTF-8.
    """
    # A device or a pipe may never end.
    if not stat.S_ISREG(path.stat().st_mode):
        message = "it is not a regular file"
        raise ValueError(message)
    with path.open("rb") as file:
        # One byte more shows that the file is larger.
        data = file.read(BYTES_AT_MOST + 1)
    if len(data) > BYTES_AT_MOST:
        message = f"it is larger than {BYTES_AT_MOST >> 10} KiB"
        raise ValueError(message)
    return data.decode("utf-8")


def _placed(candidate: AnyCandidate, folder: Path) -> AnyCandidate:
    """Return a candidate with absolute paths of its interpreter and libraries; the file's start from its folder."""
    if isinstance(candidate, ModuleCandidate):
        # A name without a folder is looked up on PATH.
        is_path = bool({"/", "\\"} & set(candidate.python))
        python = str(folder.resolve() / candidate.python) if is_path else candidate.python
        return msgspec.structs.replace(candidate, python=python)
    return msgspec.structs.replace(candidate, load=tuple(str(folder.resolve() / path) for path in candidate.load))


def parse(text: str, where: str) -> Any:
    """Return the values of a YAML text; a repeated key is an error.

    Raises:
        ConfigError: It is not YAML; the message begins with ``where``.
    """
    try:
        loader = _YamlLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_endless(node)
        return loader.construct_document(node)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        at = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        message = f"{where} is not YAML{at}: {getattr(error, 'problem', None) or error}."
        raise ConfigError(message) from error


def _refuse_endless(node: yaml.Node) -> None:
    """Refuse a document with an alias to its own parent, or with too many values after its aliases are expanded.

    Raises:
        ComposerError: It has one of these.
    """
    sizes: dict[int, int] = {}

    def size_of(node: yaml.Node) -> int:
        if id(node) not in sizes:
            sizes[id(node)] = 0  # marks a node whose parts are being counted
            parts: list[Any] = node.value if isinstance(node, yaml.CollectionNode) else []
            flat = [one for part in parts for one in (part if isinstance(part, tuple) else (part,))]
            sizes[id(node)] = 1 + sum(map(size_of, flat))
        elif not sizes[id(node)]:
            problem = "an alias refers to a value that contains it"
            raise yaml.composer.ComposerError(None, None, problem, node.start_mark)
        return sizes[id(node)]

    if size_of(node) > VALUES_AT_MOST:
        problem = f"it has more than {VALUES_AT_MOST:,} values after its aliases are expanded"
        raise yaml.composer.ComposerError(None, None, problem, node.start_mark)


class _YamlLoader(yaml.SafeLoader):
    """A safe YAML loader that reads ``2e-3`` as a number and refuses a repeated key."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        """Return a mapping in which no key is repeated."""
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                problem = "a key is a list or a mapping"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            if key in seen:
                problem = f"key {key!r} is written twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """Return a value that UTF-8 can represent; half of a surrogate pair is refused."""
        value = super().construct_scalar(node)
        if any("\ud800" <= letter <= "\udfff" for letter in str(value)):
            raise yaml.constructor.ConstructorError(None, None, "a text has half of a surrogate pair", node.start_mark)
        return value


# PyYAML follows YAML 1.1, where `2e-3` is text; in YAML 1.2, and for every human reader, it is a number.
_YamlLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+"),
    list("-+.0123456789"),
)


def decode(plain: object, where: str) -> Config:
    """Return the configuration of plain values.

    Raises:
        ConfigError: An unknown key (the nearest known one is named), a wrong type, or values that contradict each
            other.
    """
    if isinstance(plain, dict):
        # The command line and the action spell the same keys with dashes.
        plain = {str(key).replace("-", "_"): value for key, value in plain.items()}
    # Before msgspec, whose error does not name the nearest key.
    _refuse_unknown(plain, Config, where, "")
    if isinstance(plain, dict) and isinstance(plain.get("candidates"), list):
        rows = [_row(row, where, f"candidates[{i}].") for i, row in enumerate(plain["candidates"])]
        plain = {**plain, "candidates": rows}
    try:
        config = msgspec.convert(plain, Config)
    except msgspec.ValidationError as error:
        message = f"{where}: {_sentence(str(error))}"
        raise ConfigError(message) from error
    check(config, where)
    return config


#: msgspec's names of types, in plain words.
_TYPES: Final = {
    "int": "a whole number", "str": "text", "array": "a list", "object": "a mapping", "bool": "true or false",
    "float": "a number", "null": "nothing",
    "list": "a list", "dict": "a mapping", "NoneType": "nothing",
}  # fmt: skip
#: What a key with a unit takes.
_FORMS: Final = {
    "budget": "write a duration with its unit, such as 90s or 10m",
    "case_timeout": "write a duration with its unit, such as 90s or 10m",
    "memory": "write a size with its unit, such as 4GiB, or auto, or off",
}
_VALIDATION: Final = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)


def _sentence(error: str) -> str:
    """Return msgspec's validation error as a sentence: what, got and allowed."""
    error = error.replace(" - at `key` in `", " - at `keys of `").replace("`keys of `$.", "`$.keys of ")
    match = _VALIDATION.fullmatch(error)
    what, path = (match["what"], (match["path"] or "").lstrip(".")) if match else (error, "")
    expected = re.fullmatch(r"Expected `(.*)`, got `(.*)`", what)
    if expected:
        allowed = " or ".join(_TYPES.get(name.strip(), name.strip()) for name in expected[1].split("|"))
        where = f"a value of {path.removesuffix('[...]')}" if path.endswith("[...]") else path or "the file"
        given = _TYPES.get(expected[2], expected[2])
        if path in _FORMS:
            return f"{where} is {given}; {_FORMS[path]}."
        quoted = ", in quotes" if expected[1] == "str" else ""
        return f"{where} is {given}; {allowed} is expected{quoted}."
    enum = re.fullmatch(r"Invalid (?:enum )?value (.*)", what)
    if enum:
        return f"{path} is {enum[1]}; {_allowed(path)}."
    if what == "Invalid RFC3339 encoded date":
        return f"{path} is not a date. Write it as 2026-12-31."
    missing = re.fullmatch(r"Object missing required field `(.*)`", what)
    if missing:
        return f"{path} lacks {missing[1]!r}. Add it."
    return f"{path}: {what}."


def _allowed(path: str) -> str:
    name = path.rpartition(".")[2].partition("[")[0]  # of a list's item, the list's
    key = name if "." not in path else f"{path.partition('[')[0].partition('.')[0]}.{name}"
    words: tuple[str, ...] = _WORDS.get(key, ())
    return f"allowed: {', '.join(words)}" if words else "it is not one of the allowed values"


_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "seed": ("a number", "commit", "random"),
    "strictness": ("tolerance", "measured", "ulp", "bitwise"),
    "tolerances.metric": ("elements", "relative_norm", "cosine", "snr_db", "ulp"),
    "workers": ("a number", "auto"),
    "fail_on": FAIL_ON,
    "candidates.mode": ("eager", "graph"),
    "compat": ("oneflow",),
    "candidates.takes": ("program", "module"),
    "candidates.layouts": ("contiguous",),
    "reference.device": ("cpu", "cuda", "auto"),
    "reference.backend": ("torch",),
    "opinfo.decorator": ("expectedFailure", "skip"),
}


def _refuse_unknown(plain: object, kind: type, where: str, at: str) -> None:
    if not isinstance(plain, dict):
        return
    fields = _fields(kind)
    for key, value in plain.items():
        if key not in fields:
            raise ConfigError(_unknown(where, at, key, fields))
        item = _SECTIONS.get(key) if kind is Config else None
        if item is not None:
            for i, entry in enumerate(value if isinstance(value, list) else [value]):
                _refuse_unknown(entry, item, where, f"{key}[{i}]." if isinstance(value, list) else f"{key}.")


def _fields(kind: type) -> dict[str, Any]:
    return {field.encode_name: field.default for field in msgspec.structs.fields(kind)}


def _unknown(where: str, at: str, key: object, known: Collection[str]) -> str:
    nearest = difflib.get_close_matches(str(key), known, 1, 0.5)
    hint = f"Did you mean {nearest[0]!r}?" if nearest else f"Known: {', '.join(sorted(known))}."
    return f"{where}: unknown key {at}{key!r}. {hint}"


def _is_known(row: Mapping[str, object]) -> bool:
    return row.get("backend") in {*KINDS, *names_in(PLUGINS)}


def _row(row: object, where: str, at: str) -> object:
    """Return a candidate's row; one of a kind of another package as that of the kind that it runs as.

    Raises:
        ConfigError: A key is unknown, or another kind's, or the kind cannot be used.
    """
    backend = row.get("backend") if isinstance(row, dict) else None
    is_own = not isinstance(backend, str) or backend in KINDS or backend not in names_in(PLUGINS)
    if is_own or not isinstance(row, dict):
        return _own_keys(row, where, at)
    what = f"{where}: backend '{backend}'"
    kind = loaded(entry_of(PLUGINS, str(backend), what), what)
    if not (isinstance(kind, type) and issubclass(kind, Candidate)) or kind.__struct_config__.tag != backend:
        message = (
            f"{what} is {str(kind)[:80]}, which is not a class of candidates with tag='{backend}': its package has to "
            "correct the entry point."
        )
        raise ConfigError(message)
    try:
        _refuse_unknown({key: value for key, value in row.items() if key != "backend"}, kind, where, at)
        candidate = msgspec.convert(row, kind)
    except NameError as error:
        message = f"{what}: a key of {kind.__name__} has a type that is not imported at run time: {error_text(error)}."
        raise ConfigError(message) from error
    except msgspec.ValidationError as error:
        said = str(error) if " - at `$" in str(error) else f"{error} - at `$`"
        message = f"{where}: {_sentence(said.replace('`$', f'`$.{at}'.rstrip('.')))}"
        raise ConfigError(message) from error
    try:
        check_candidate(candidate, where)
        lowered = candidate.lowered()
        plain = msgspec.to_builtins(lowered)
    except (ConfigError, KeyboardInterrupt):
        raise
    except BaseException as error:  # code of the package
        said = " ".join(error_text(error).split())[:300]
        message = f"{what} cannot be used: {kind.__name__} of its package raised {type(error).__name__}: {said}."
        raise ConfigError(message) from error
    if not isinstance(lowered, tuple(KINDS.values())):
        message = (
            f"{what} runs as {type(lowered).__name__}, which is none of the kinds of ci-autotest: `lowered` of "
            f"{kind.__name__} has to return one."
        )
        raise ConfigError(message)
    if lowered.name != candidate.name:
        message = f"{what} renames candidate {candidate.name!r} to {lowered.name[:80]!r}, which `lowered` must not."
        raise ConfigError(message)
    return plain


#: Most kinds that a message names.
_KINDS_NAMED: Final = 4


def _own_keys(row: object, where: str, at: str) -> object:
    """Return a candidate's row without the keys of other kinds that say what is so without them.

    Raises:
        ConfigError: A key is unknown, or another kind's.
    """
    if not isinstance(row, dict):
        return row
    kinds = {name: {"backend": None, **_fields(kind)} for name, kind in KINDS.items()}
    backend = row.get("backend")
    if not isinstance(backend, str) or backend not in kinds:
        given = f"is {backend!r}"[:80] if "backend" in row else "is missing"
        message = (
            f"{where}: {at}backend {given}; allowed: {', '.join(kinds)}, and what installed packages add: "
            f"{', '.join(sorted(set(names_in(PLUGINS)) - {*kinds})) or 'none'}."
        )
        raise ConfigError(message)
    own = kinds[backend]
    every = {key for keys in kinds.values() for key in keys}
    for key, value in row.items():
        if key not in every:
            raise ConfigError(_unknown(where, at, key, own))
        has_it = [name for name, keys in kinds.items() if key in keys]
        if key not in own and value not in (kinds[has_it[0]][key], None, [], {}):
            other = (
                f"Write backend: {' or '.join(has_it)}, or remove it." if len(has_it) <= _KINDS_NAMED else "Remove it."
            )
            message = (
                f"{where}: candidate {str(row.get('name'))[:80]!r} has {str(key)!r}, which backend {backend} does not "
                f"use. {other}"
            )
            raise ConfigError(message)
    return {key: value for key, value in row.items() if key in own}


_SECTIONS: Final[dict[str, type]] = {
    "reference": Reference, "tolerances": ToleranceRule, "known": Known,
    "opinfo": OpInfo,
}  # fmt: skip


def find(folder: Path) -> Path | None:
    """Return the nearest ``autotest.yml``, in ``folder`` or above."""
    for parent in (folder, *folder.parents):
        path = parent / FILE_NAME
        if path.is_file():
            return path
    return None


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``autotest.yml``, for editors and the documentation."""
    return schema_of(Config)
