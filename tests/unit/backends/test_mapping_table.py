"""Tables: each way to be wrong is one message that names file, row and what to write."""

from __future__ import annotations

import pytest
import torch

from ci_autotest.backends.framework.mapping.table import TABLES, MappingRow, load_table, read_table
from ci_autotest.errors import ConfigError

HEAD = 'framework: toy\nversion: "1.0"\nnamespace: toy\n'
PAIRS = "from toys import hidden_behind\n\n\ndef common_dtype(value, other):\n    return value\n\n\nequal = print\n"
ADAPTERS = "from toys import imported\nfrom toys.toy_pairs import *\n\n\ndef transpose(weight):\n    return weight\n\n\ndef _hidden():\n    pass\n"


@pytest.fixture
def adapters(tmp_path):
    (tmp_path / "toy.py").write_text(ADAPTERS)
    (tmp_path / "toy_pairs.py").write_text(PAIRS)
    return tmp_path


def read(rows, adapters, head=HEAD):
    return read_table(f"{head}operators:\n{rows}", "toy.yml", adapters)


def test_read_table__a_row_of_everything__is_kept(adapters):
    row = """
  torch.nn.functional.linear:
    to: toy.linear
    inplace: toy.linear_
    rename: {input: x}
    default: {bias: null}
    only: {weight: [1, 2]}
    fill: {fast: true}
    adapt: {weight: transpose}
    promote: common_dtype
    result: equal
    positional: [input, weight]
    reason: the weight lies the other way
"""
    found = read(row, adapters)
    assert (found.label, found.like_torch) == ("toy 1.0", False)
    assert found.row("torch.nn.functional.linear") == MappingRow(
        to="toy.linear", inplace="toy.linear_", rename={"input": "x"}, default={"bias": None}, only={"weight": [1, 2]}, fill={"fast": True},
        adapt={"weight": "transpose"}, promote="common_dtype", result="equal", positional=("input", "weight"),
        reason="the weight lies the other way",
    )  # fmt: skip
    assert found.row("torch.add") is None


WRONG = [
    ("  torch.sofmax: {to: toy.softmax}",
     "toy.yml, row torch.sofmax: torch {torch} has no operator of this name. Did you mean torch.nn.functional.softmax?"),
    ("  torch.softmax: {to: toy.softmax}",
     "toy.yml, row torch.softmax: write this row under the operator's canonical name, torch.nn.functional.softmax."),
    ("  torch.special.expit: {to: toy.sigmoid}", "write this row under the operator's canonical name, torch.sigmoid."),
    ("  os.system: {to: toy.softmax}", "toy.yml, row os.system: torch {torch} has no operator of this name."),
    ("  torch.nn.Linear: {to: toy.Linear}",
     "toy.yml, row torch.nn.Linear: modules are lowered to functions, so give rows for the functions"),
    ("  torch.add: {to: toy.add, rename: {inputs: x}}",
     "toy.yml, row torch.add: `rename` names argument 'inputs', which torch.add does not have. Did you mean input? It has alpha, input, o"),
    ("  torch.add: {to: toy.add, default: {beta: 1}, reason: none}", "`default` names argument 'beta'"),
    ("  torch.add: {to: toy.add, only: {b: [1]}, reason: none}", "`only` names argument 'b'"),
    ("  torch.add: {to: toy.add, only: {alpha: 1}, reason: none}", "expected `array`, got `int` - at `$.only[...]`."),
    ("  torch.add: {to: toy.add, adapt: {b: transpose}, reason: none}", "`adapt` names argument 'b'"),
    ("  torch.add: {to: toy.add, positional: [b], reason: none}", "`positional` names argument 'b'"),
    ("  torch.add: {to: toy.add, adapt: {other: transpos}, reason: none}",
     "toy.yml, row torch.add: host/adapters/toy.py has no function 'transpos'. Did you mean transpose?"),
    ("  torch.add: {to: adapters._hidden}", "host/adapters/toy.py has no function '_hidden'."),
    ("  torch.add: {to: toy.add, result: nothing, reason: none}", "host/adapters/toy.py has no function 'nothing'."),
    ("  torch.add: {to: toy.add, promote: common_type, positional: [input, other], reason: none}",
     "host/adapters/toy.py has no function 'common_type'. Did you mean common_dtype?"),
    ("  torch.add: {to: toy.add, result: hidden_behind, reason: none}", "has no function 'hidden_behind'."),
    ("  torch.add: {to: toy.add, promote: common_dtype, positional: [input, other]}", "it has `promote` and no `reason`."),
    ("  torch.add: {to: toy.add, promote: common_dtype, reason: none}", "it has `promote` and no `positional`."),
    ("  torch.add: {to: toy.add, default: {alpha: 1}}",
     "toy.yml, row torch.add: it has `default` and no `reason`. Say in a few words why another name is not enough."),
    ("  torch.add: {to: toy.add, positional: [input]}", "it has `positional` and no `reason`."),
    ("  torch.add: {to: toy.add, fill: {a: 1}}", "it has `fill` and no `reason`."),
    ("  torch.add: {}", "toy.yml, row torch.add: it has neither `to` nor `unsupported`."),
    ("  torch.add: {to: toy.add, unsupported: no}", "expected `str`, got `bool`"),
    ("  torch.add: {to: toy.add, unsupported: none such}", "it has `unsupported` and also a counterpart."),
    ("  torch.add: {to: 'toy add'}", "toy.yml, row torch.add: 'toy add' is not a dotted path."),
    ("  torch.add: {too: toy.add}", "toy.yml, row torch.add: there is no key 'too'. Did you mean to? It has to, inplace, rename"),
    ("  torch.add: toy.add", "toy.yml, row torch.add: expected `object`, got `str`."),
    ("  torch.add: {to: toy.add}\n  torch.add: {to: toy.plus}",
     "toy.yml, row torch.add: it is in line 5 and in line 6. Keep one."),
    ("  torch.add: {to: toy.add", "toy.yml is not valid YAML: "),
]  # fmt: skip


@pytest.mark.parametrize(("row", "message"), WRONG, ids=[row.strip()[:50] for row, _ in WRONG])
def test_read_table__a_wrong_row__is_one_message(row, message, adapters):
    with pytest.raises(ConfigError) as raised:
        read(row, adapters)
    assert message.replace("{torch}", torch.__version__) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (
            HEAD + "colour: red\n",
            "toy.yml: there is no key 'colour'. It has framework, version, namespace, operators, like_torch, same_generator.",
        ),
        ("framework: toy\nnamespace: toy\n", "toy.yml: object missing required field `version`"),
        (HEAD.replace('"1.0"', "1.0"), "toy.yml: expected `str`, got `float` - at `$.version`."),
    ],
)
def test_read_table__a_wrong_head__is_one_message(head, message, adapters):
    with pytest.raises(ConfigError) as raised:
        read("  torch.add: {to: toy.add}", adapters, head)
    assert message in str(raised.value)


def test_read_table__like_torch__may_have_rows_of_module_classes(adapters):
    found = read(
        "  torch.nn.Linear: {to: toy.Dense, rename: {in_features: inner}}", adapters, HEAD + "like_torch: true\n"
    )
    assert found.row("torch.nn.Linear") == MappingRow(to="toy.Dense", rename={"in_features": "inner"})


def test_load_table__of_a_framework_without_one__names_those_that_ship():
    with pytest.raises(ConfigError, match=r"there is no table for 'tinygrad'. Tables ship for .*oneflow.*torch\."):
        load_table("tinygrad")


@pytest.mark.parametrize("path", sorted(TABLES.glob("*.yml")), ids=lambda path: path.stem)
def test_load_table__each_that_ships__is_right(path):
    assert load_table(path.stem).framework == path.stem


def test_extended__a_row_of_a_users__takes_the_place_of_the_files(adapters):
    table = read("  torch.add: {to: toy.add}\n  torch.sub: {to: toy.sub}", adapters)
    extended = table.extended(
        {"torch.add": {"to": "mine.add", "rename": {"other": "y"}}}, "candidate 'toy' of autotest.yml"
    )
    assert extended.row("torch.add") == MappingRow(to="mine.add", rename={"other": "y"})
    assert extended.row("torch.sub") == table.row("torch.sub")
    assert table.row("torch.add") == MappingRow(to="toy.add")


def test_extended__a_wrong_row__is_named_with_its_candidate(adapters):
    table = read("  torch.add: {to: toy.add}", adapters)
    with pytest.raises(ConfigError, match=r"^candidate 'toy' of autotest.yml, row torch.add: there is no key 'name'\."):
        table.extended({"torch.add": {"name": "mine.add"}}, "candidate 'toy' of autotest.yml")


@pytest.mark.parametrize(
    ("operator", "said"),
    [
        ("torch.rant", "toy.yml, same_generator, torch.rant: torch {torch} has no operator of this name. Did you mean"),
        ("torch.add", "toy.yml, same_generator, torch.add: it draws no random numbers."),
    ],
)
def test_read_table__a_word_on_the_generator_that_says_nothing__is_refused(operator, said):
    with pytest.raises(ConfigError) as caught:
        read_table(f"{HEAD}same_generator: [{operator}]\n", "toy.yml")
    assert said.format(torch=torch.__version__) in str(caught.value)
