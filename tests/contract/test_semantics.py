"""Each rule of record and replay has its tests: which ones, and that they exist.

The rules are those of the project's notes on semantics, by number; a word says what each is about.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
COUNT = 23
RULES: dict[int, tuple[str, list[str]]] = {
    1: ("rejected or broken", [
        "unit/record/test_unsupported_uses.py::test_record__reference_refuses__is_a_rejection",
        "unit/record/test_unsupported_uses.py::test_record__refusal_caught_by_the_body__is_a_step_and_the_body_goes_on",
        "contract/test_body_messages.py::test_body__wrong__says_what_to_write_and_where",
    ]),
    2: ("the reference raises", [
        "quality/test_differences.py::test_judge_refusal__candidate_accepts_the_refused_step__is_told",
        "quality/test_differences.py::test_differences__reference_backward_raises__forward_stands_alone",
        "end_to_end/test_undefined_gradients.py::test_run__reference_cannot_differentiate__is_counted_and_the_values_compared",
    ]),
    3: ("version counters have holes", [
        "quality/test_autograd_semantics.py::test_versions__a_write_that_is_not_counted__is_found",
        "unit/record/test_module_steps.py::test_record__module_trained__source_stays",
        "contract/test_body_messages.py::test_body__wrong__says_what_to_write_and_where",
    ]),
    4: ("module state", [
        "unit/record/test_module_steps.py::test_record__module__its_state_is_snapshotted_before_the_first_forward",
        "quality/test_verdict.py::test_judge_program__wrong_module_with_state__culprit_keeps_its_state",
    ]),
    5: ("storage", [
        "unit/record/test_recorder.py::test_record__input_written_by_the_body__source_stays",
        "unit/record/test_recorder.py::test_record__plain_tensor_that_the_body_changes_later__is_kept_as_it_was",
        "integration/test_arrays.py::test_array__made_a_tensor__is_an_input",
    ]),
    6: ("in-place", [
        "quality/test_in_place.py::test_is_aligned__fault_in_a_body_that_overwrites__is_not_sure",
        "unit/record/test_unsupported_uses.py::test_record__leaf_written_in_place__is_a_rejection",
    ]),
    7: ("gradients of overwritten values", [
        "quality/test_differences.py::test_differences__gradient_of_an_overwritten_value__is_of_the_version_seen",
        "unit/backends/test_autograd_engine.py::test_gradient_edge__of_an_overwritten_value__is_of_the_old_version",
    ]),
    8: ("cotangents", [
        "unit/record/test_draws.py::test_record__cotangents__are_signed_and_of_the_case",
        "unit/backends/test_torch_eager.py::test_backward__each_run__gets_its_own_cotangent",
        "quality/test_differences.py::test_differences__planted_fault__is_of_its_kind",
        "quality/test_profiles.py::test_non_contiguous__gradient_that_is_put_in__is_so_too_and_finds_who_reads_it_in_order",
    ]),
    9: ("roots per side", [
        "quality/test_autograd_semantics.py::test_semantics__a_candidate_that_breaks_it__is_found",
        "unit/backends/test_torch_eager.py::test_backward__output_returned_twice__counts_once",
        "unit/record/test_recorder.py::test_record__cotangents__are_for_outputs_that_require_grad",
    ]),
    10: (".grad and autograd.grad", [
        "quality/test_autograd_semantics.py::test_automatic_pass__of_the_same_graph__has_the_same_gradients",
        "quality/test_hooks.py::test_hook__scaled_gradient__is_what_plain_torch_gives",
    ]),
    11: ("explicit backward", [
        "quality/test_autograd_semantics.py::test_worked_example__loss_and_gradients__are_those_of_the_textbook",
        "end_to_end/test_bodies_with_passes.py::test_run__bodies_with_their_own_passes__are_found_named_and_reproduced",
    ]),
    12: ("no_grad and autocast", [
        "unit/record/test_recorder.py::test_record__body__is_written_down_and_replays_bit_by_bit",
        "unit/host/test_steps.py::test_execute_step__mode__is_the_bindings",
        "end_to_end/test_bodies_with_passes.py::test_run__bodies_with_their_own_passes__are_found_named_and_reproduced",
    ]),
    13: ("Python control flow", [
        "quality/test_semantics_rules.py::test_rule_13__candidate_of_another_mind__follows_the_references_branch_and_is_found",
        "integration/test_arrays.py::test_number__wrong_on_a_candidate__is_found",
        "integration/test_arrays.py::test_number__of_a_tensor_within_tolerance__is_within_tolerance_itself",
        "unit/shrink/test_shrinker.py::test_shrinker__draws__reach_the_minimum",
    ]),
    14: ("escapes", [
        "integration/test_arrays.py::test_numpy__wrong_on_a_candidate__is_found",
        "unit/program/test_check.py::test_check_program__array__is_used_by_no_step",
        "unit/record/test_recorder.py::test_record__user_module_in_plain_torch__records_its_inner_calls",
        "contract/test_body_messages.py::test_body__wrong__says_what_to_write_and_where",
    ]),
    15: ("randomness", [
        "quality/test_differences.py::test_tried__no_case_in_which_a_random_operator_differs__with_one_seed",
        "unit/record/test_draws.py::test_record__global_generators__are_set_before_each_attempt",
        "unit/backends/test_torch_eager.py::test_run__random_step__does_not_depend_on_the_generator",
    ]),
    16: ("alignment of storage", [
        "unit/backends/test_torch_eager.py::test_place__twice__is_two_copies_aligned_alike",
        "unit/record/test_profiles.py::test_attempt__non_contiguous__takes_each_layout",
    ]),
    17: ("torch.equal", [
        "unit/alignment/test_compare.py::test_compare__planted_pair__is_right_at_each_strictness",
        "unit/alignment/test_compare.py::test_compare__sparse_against_dense__is_misaligned",
        "unit/alignment/test_compare.py::test_same_bits__equal_bits_of_nan__are_the_same",
    ]),
    18: ("generators", [
        "unit/record/test_generators.py::test_generator__of_the_module__has_a_value_per_attempt",
        "unit/record/test_arguments.py::test_resolve__several_types__cannot_be_told",
        "unit/record/test_draws.py::test_record__edited_size__leaves_the_other_tensors_data",
    ]),
    19: ("outputs that are tuples", [
        "quality/test_semantics_rules.py::test_rule_19__wrong_arity__is_a_misalignment_of_shape_and_no_crash",
        "unit/record/test_recorder.py::test_record__nested_outputs__are_flattened",
        "quality/test_packed_sequences.py::test_packed__layer_that_is_wrong__is_found_alone",
    ]),
    20: ("metadata twice", [
        "quality/test_semantics_rules.py::test_rule_20__flag_that_a_candidate_changes_later__is_seen_at_the_end",
        "quality/test_differences.py::test_tried__flags_of_the_input_changed__is_misaligned",
    ]),
    21: ("batches change nothing", [
        "quality/test_semantics_rules.py::test_rule_21__batches_of_1_and_of_32__say_the_same_to_the_byte",
        "unit/record/test_draws.py::test_prefetch__any_run_of_cases__gives_what_is_drawn_one_by_one",
    ]),
    22: ("modules and functions of the user's", [
        "quality/test_user_modules.py::test_module__traced__is_a_program_with_its_parameters_as_leaves",
        "quality/test_autograd_functions.py::test_function__traced__gives_what_plain_torch_gives",
        "quality/test_semantics_rules.py::test_rule_22__numpy_scalar__becomes_a_number_of_pythons",
    ]),
    23: ("nondeterministic sides", [
        "integration/test_repeatability.py::test_judge_confirmed__reference_differs_from_itself__is_not_the_candidates_fault",
        "integration/test_repeatability.py::test_judge_confirmed__candidate_differs_from_itself__is_nondeterminism",
    ]),
}  # fmt: skip


@lru_cache(maxsize=64)
def defined(file: str) -> frozenset[str]:
    """Return the names of the tests that a file defines."""
    path = TESTS / file
    if not path.is_file():
        return frozenset()
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return frozenset(item.name for item in body if isinstance(item, ast.FunctionDef) and item.name.startswith("test_"))


def missing(rules: dict[int, tuple[str, list[str]]]) -> list[str]:
    """Return what the map lacks: rules without a number or a test, and tests that are not there."""
    found = [f"rule {number}" for number in range(1, COUNT + 1) if not rules.get(number, ("", []))[1]]
    found += [f"rule {number} is none of the {COUNT}" for number in rules if not 1 <= number <= COUNT]
    named = [node for _, nodes in rules.values() for node in nodes]
    return found + [node for node in named if node.partition("::")[2] not in defined(node.partition("::")[0])]


def test_rules__each__has_tests_that_exist():
    assert missing(RULES) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({3: ("", [])}, ["rule 3"]),
        (
            {24: ("", ["contract/test_semantics.py::test_rules__each__has_tests_that_exist"])},
            ["rule 24 is none of the 23"],
        ),
        ({3: ("", ["integration/test_arrays.py::test_gone"])}, ["integration/test_arrays.py::test_gone"]),
        ({3: ("", ["unit/gone.py::test_gone"])}, ["unit/gone.py::test_gone"]),
    ],
    ids=["no test", "no such rule", "no such function", "no such file"],
)
def test_missing__map_that_lacks_something__says_what(changed: dict[int, tuple[str, list[str]]], said: list[str]):
    assert missing({**RULES, **changed}) == said
