"""Outputs that are not unique: another choice is aligned, a broken promise is not, and each row says where it is from."""

from __future__ import annotations

import pytest
import torch as real
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.differences import Examination
from ci_autotest.alignment.properties.call import SideCall, is_drawn
from ci_autotest.alignment.properties.matrices import same_multiset
from ci_autotest.alignment.properties.table import TABLE, row_of
from ci_autotest.alignment.undefined_results import settle
from ci_autotest.backends.eager.backend import TorchBackend
from tests.engine import RULES, record, run_test, substitute

F_ = torch.nn.functional


def matrix(rows=4, columns=4):
    return random_tensor(ndim=2, dim0=rows, dim1=columns)


def eigh():
    x = matrix()
    return torch.linalg.eigh(x + x.T)


def eigh_used():
    x = matrix()
    return torch.tanh(torch.linalg.eigh(x + x.T)[1]) * 2


def eig():
    return torch.linalg.eig(random_tensor(ndim=2, dim0=4, dim1=4, requires_grad=False))


def svd():
    return torch.linalg.svd(matrix(4, 3), full_matrices=False)


def full_svd():
    return torch.linalg.svd(matrix(5, 3))


def full_svd_of_a_wide_matrix():
    return torch.linalg.svd(matrix(3, 5))


def old_svd():
    return torch.svd(matrix(4, 3))


def eigvals():
    return torch.linalg.eigvals(random_tensor(ndim=2, dim0=4, dim1=4, requires_grad=False) * 1e-4)


def qr():
    return torch.linalg.qr(matrix(4, 3))


def sort():
    return torch.sort(random_tensor(ndim=2, dim0=4, dim1=5), dim=0)


def argsort():
    return torch.argsort(random_tensor(ndim=2, dim0=4, dim1=5, low=0, high=3, dtype=int))


def stable_sort():
    return torch.sort(random_tensor(ndim=1, dim0=9, low=0, high=3, dtype=int), stable=True)


def topk():
    return torch.topk(random_tensor(ndim=1, dim0=6, low=0, high=3, dtype=int), 3)


def median():
    return torch.median(random_tensor(ndim=2, dim0=3, dim1=5, low=0, high=3, dtype=int), 1)


def mode():
    return torch.mode(random_tensor(ndim=2, dim0=3, dim1=6, low=0, high=4, dtype=int), 1)


def unique():
    x = random_tensor(ndim=1, dim0=9, dtype=int, low=0, high=4)
    return torch.unique(x, sorted=False, return_inverse=True, return_counts=True)


def dropout():
    return F_.dropout(random_tensor(ndim=2, dim0=20, dim1=20), p=0.3)


def dropout_of_few():
    return F_.dropout(random_tensor(ndim=2, dim0=6, dim1=6, low=1, high=2), p=0.5)


def dropout_of_a_module():
    return torch.nn.Dropout(0.3)(random_tensor(ndim=2, dim0=20, dim1=20))


def no_dropout():
    return F_.dropout(random_tensor(ndim=2, dim0=4, dim1=4, requires_grad=False), p=0.5, training=False)


def empty():
    return torch.empty_like(random_tensor(requires_grad=False))


def pooled():
    return F_.max_pool2d(random_tensor(ndim=4, low=0, high=1), 2, return_indices=True)


def flipped(function, *positions):
    """Return ``function`` with the sign of some of its outputs turned."""

    def call(*args, **kwargs):
        found = list(function(*args, **kwargs))
        for position in positions:
            found[position] = -found[position]
        return tuple(found)

    return call


def last_of_ties(x, dim=-1, **_):
    found = x.flip(dim).sort(dim=dim, stable=True)
    return found.values, x.shape[dim] - 1 - found.indices


def last_order_of_ties(x, dim=-1, **_):
    return last_of_ties(x, dim)[1]


def without_the_rest(x):
    """Return a full decomposition whose vectors beyond the rank are not there."""
    left, values, right = (found.clone() for found in real.linalg.svd(x))
    rank = values.shape[-1]
    left[..., rank:], right[..., rank:, :] = 0, 0
    return -left, values, -right


def with_another_rest(x):
    left, values, right = (found.clone() for found in real.linalg.svd(x))
    rank = values.shape[-1]
    left[..., rank:] *= -1
    right[..., rank:, :] *= -1
    return left, values, right


def other_topk(x, k, **_):
    values, indices = last_of_ties(-x)
    return -values[:k], indices[:k]


def last_median(x, dim, **_):
    values = x.median(dim).values
    return values, x.shape[dim] - 1 - (x.flip(dim) == values.unsqueeze(dim)).int().argmax(dim)


def greatest_mode(x, dim, count_is_right=True, **_):
    """Return the greatest of the most frequent; of all values if the count does not matter."""
    counts = (x.unsqueeze(dim) == x.unsqueeze(dim + 1)).sum(dim + 1)
    values = x.where((counts == counts.amax(dim, keepdim=True)) | (not count_is_right), -1).amax(dim)
    return values, (x == values.unsqueeze(dim)).int().argmax(dim)


def reversed_unique(x, inverse_is_right=True, **_):
    found, inverse, counts = real.unique(x, return_inverse=True, return_counts=True)
    return found.flip(0), len(found) - 1 - inverse if inverse_is_right else inverse, counts.flip(0)


def dropped(x, p=0.5, training=True, *, really=None, scale=None, **_):
    kept = real.rand(x.shape, generator=real.Generator().manual_seed(5)) > (p if really is None else really)
    return x * kept * (1 / (1 - p) if scale is None else scale)


def reordered(function):
    def call(x):
        values, vectors = function(x)
        return values.flip(-1), vectors.flip(-1)

    return call


def scaled(function, position, by):
    def call(*args, **kwargs):
        found = list(function(*args, **kwargs))
        found[position] = found[position] * by
        return tuple(found)

    return call


OTHER_CHOICES = [
    (eigh, "linalg.eigh", flipped(real.linalg.eigh, 1)),
    (eigh_used, "linalg.eigh", flipped(real.linalg.eigh, 1)),
    (eig, "linalg.eig", reordered(real.linalg.eig)),
    (svd, "linalg.svd", flipped(real.linalg.svd, 0, 2)),
    (full_svd, "linalg.svd", with_another_rest),
    (full_svd_of_a_wide_matrix, "linalg.svd", with_another_rest),
    (old_svd, "svd", flipped(real.svd, 0, 2)),
    (eigvals, "linalg.eigvals", lambda a: real.linalg.eigvals(a).flip(-1)),
    (qr, "linalg.qr", flipped(real.linalg.qr, 0, 1)),
    (sort, "sort", last_of_ties),
    (argsort, "argsort", last_order_of_ties),
    (topk, "topk", other_topk),
    (median, "median", last_median),
    (mode, "mode", greatest_mode),
    (unique, "unique", reversed_unique),
    (dropout, "nn.functional.dropout", dropped),
    (dropout_of_a_module, "nn.functional.dropout", dropped),
    (empty, "empty_like", lambda x, **_: real.full_like(x, 7)),
]

BROKEN = [
    (eigh, "linalg.eigh", scaled(real.linalg.eigh, 1, 1.01), "not orthonormal"),
    (eigh, "linalg.eigh", lambda x: (real.linalg.eigh(x)[0], real.eye(4).expand_as(x) + 0 * x), "A Q is not Q diag(L)"),
    (eig, "linalg.eig", scaled(real.linalg.eig, 0, 1.5), "eigenvalues differ"),
    (svd, "linalg.svd", flipped(real.linalg.svd, 0), "U diag(S) V^H is not A"),
    (full_svd, "linalg.svd", without_the_rest, "singular vectors are not orthonormal"),
    (full_svd_of_a_wide_matrix, "linalg.svd", without_the_rest, "singular vectors are not orthonormal"),
    (old_svd, "svd", flipped(real.svd, 0), "U diag(S) V^H is not A"),
    (eigvals, "linalg.eigvals", lambda a: real.linalg.eigvals(a) * 0, "more than their order"),
    (argsort, "argsort", lambda x, **_: x.argsort().flip(-1), "select other values"),
    (qr, "linalg.qr", flipped(real.linalg.qr, 0), "Q R is not A"),
    (sort, "sort", lambda x, dim, **_: (x.sort(dim).values, x.sort(dim).indices * 0), "select"),
    (stable_sort, "sort", last_of_ties, ""),
    (topk, "topk", lambda x, k, **_: (x.topk(k).values, x.topk(k).indices[:1].expand(k)), "select"),
    (median, "median", lambda x, dim, **_: (x.median(dim).values, x.argmax(dim)), "select"),
    (mode, "mode", lambda x, dim, **_: greatest_mode(x, dim, count_is_right=False), "one of the most frequent"),
    (mode, "mode", lambda x, dim, **_: (x.mode(dim).values, x.mode(dim).indices * 0), "select"),
    (unique, "unique", lambda x, **_: reversed_unique(x, inverse_is_right=False), "inverse"),
    (dropout, "nn.functional.dropout", lambda x, p=0.5, training=True, **_: dropped(x, p, scale=1), "neither 0 nor"),
    (dropout, "nn.functional.dropout", lambda x, p=0.5, training=True, **_: dropped(x, p, really=0.9), "elements are 0"),
    (dropout_of_few, "nn.functional.dropout", lambda x, p=0.5, training=True, **_: 0 * x, "36 of 36 elements are 0"),
    (no_dropout, "nn.functional.dropout", dropped, ""),
    (pooled, "nn.functional.max_pool2d_with_indices",
     lambda x, k, **_: (F.max_pool2d(x, k), F.max_pool2d(x, k, return_indices=True)[1] + 1), "ind"),
]  # fmt: skip


def names(rows):
    return [f"{row[0].__name__}-{i}" for i, row in enumerate(rows)]


@pytest.mark.parametrize(("body", "operator", "function"), OTHER_CHOICES, ids=names(OTHER_CHOICES))
def test_judge_program__another_choice__is_aligned(body, operator, function):
    verdicts = run_test(body, substitute(**{operator: function}), 8)
    assert [item.misalignment for item in verdicts if item.outcome != "aligned"] == []


@pytest.mark.parametrize(("body", "operator", "function", "told"), BROKEN, ids=names(BROKEN))
def test_judge_program__broken_promise__is_misaligned_and_says_which(body, operator, function, told):
    verdicts = run_test(body, substitute(**{operator: function}), 8)
    found = [item for item in verdicts if item.outcome == "misaligned"]
    assert found
    assert {(item.operator.rpartition(".")[2], item.kind, item.blame) for item in found} == {
        (operator.rpartition(".")[2].removesuffix("_with_indices"), "value", "candidate")
    }
    assert any(told in item.misalignment.detail for item in found)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        pytest.param([3.0, 1.0, 2.0, 1.0], "", id="another order"),
        pytest.param([1.0, 2.0, 3.0, 3.0], "more than their order", id="another one twice"),
        pytest.param([1.0, 1.0, 2.0], "number of values differs", id="one is missing"),
    ],
)
def test_same_multiset__each_value_counts_once(found, told):
    expected = real.tensor([1.0, 1.0, 2.0, 3.0], dtype=real.complex64)
    call = SideCall("eigvals", (real.diag(expected),), {}, (real.tensor(found, dtype=expected.dtype),), (expected,))
    said = same_multiset(call)
    assert told in said if told else said == ""


def test_same_multiset__each_matrix_of_a_batch__by_its_own_scale():
    expected = real.tensor([[1e3, 2e3], [1e-3, 2e-3]], dtype=real.complex64)
    found = expected * real.tensor([[1.0], [2.0]])
    assert same_multiset(SideCall("eigvals", (real.diag_embed(expected),), {}, (found,), (expected,)))


class Elsewhere(real.Tensor):
    """A tensor that, like one of another device, goes together with its own kind only."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is real.Tensor.cpu:
            return args[0].as_subclass(real.Tensor)
        if any(type(arg) is real.Tensor for arg in args):
            message = "expected all tensors to be on the same device"
            raise RuntimeError(message)
        return super().__torch_function__(function, types, args, kwargs)


@pytest.mark.parametrize(
    ("body", "operator", "function"), [(argsort, "argsort", last_order_of_ties), (unique, "unique", reversed_unique)]
)
def test_settle__sides_on_different_devices__are_asked_on_the_host(body, operator, function):
    attempt = record(body)
    ours, theirs = (
        backend.run(attempt.program, attempt.sources, snapshots=True)
        for backend in (substitute(**{operator: function}), TorchBackend())
    )
    found = Examination(attempt.program, attempt.sources, {}, RULES).differences(ours, theirs)
    assert found
    ours.values, ours.observations = (
        elsewhere(ours.values),
        [item and item._replace(data=elsewhere([item.data])[0]) for item in ours.observations],
    )
    assert settle(found, attempt.program, ours, theirs) == ([], [])


def test_settle__input_that_the_candidate_does_not_show__is_as_the_reference_saw_it():
    """A whole, as a compiler's, shows inputs and outputs: the call in question has no input of its own."""

    def body():
        x = random_tensor(dims=(4,), requires_grad=False)
        return torch.sort(torch.cat([x, x]))

    attempt = record(body)
    backend = TorchBackend()
    ours, theirs = (backend.run(attempt.program, attempt.sources, snapshots=True) for _ in range(2))
    inside = next(index for index, step in attempt.program.calls if step.target == "torch.cat")
    last = len(attempt.program.steps) - 2
    ours.values[last] = ours.values[last].flip(0)
    ours.observations[last] = ours.observations[last]._replace(data=ours.values[last])
    ours.values[inside] = ours.observations[inside] = None
    ours.shown = frozenset(range(len(ours.values))) - {inside}
    found = Examination(attempt.program, attempt.sources, {}, RULES).differences(ours, theirs)
    (sure,) = settle(found, attempt.program, ours, theirs).sure
    assert "what is defined of it does not hold" in sure.detail


def elsewhere(values):
    """Return values with each tensor, those of a tuple too, on another device."""
    return [
        value.as_subclass(Elsewhere) if isinstance(value, real.Tensor)
        else tuple(elsewhere(value)) if isinstance(value, tuple)
        else value
        for value in values
    ]  # fmt: skip


def test_judge_program__fault_downstream_of_another_choice__is_still_found():
    candidate = substitute(**{"linalg.eigh": flipped(real.linalg.eigh, 1), "tanh": lambda v: v.tanh() * 1.01})
    verdicts = run_test(eigh_used, candidate, 4)
    assert {(item.outcome, item.operator) for item in verdicts} == {("misaligned", "torch.tanh")}


def test_table__each_row__names_its_source():
    assert all(row.source.startswith(("https://docs.pytorch.org/", "pytorch/pytorch")) for row in TABLE.values())
    assert row_of("torch.nn.functional.dropout") is not None
    assert row_of("torch.exp") is None


@pytest.mark.parametrize(("share", "draws"), [(0.0, False), (0.5, True), (1.0, False)])
@pytest.mark.parametrize(
    "call",
    [
        lambda share: SideCall("dropout", (real.ones(2),), {"p": share}, (), ()),
        lambda share: SideCall("dropout", (real.ones(2),), {"p": share, "training": True}, (), ()),
        lambda share: SideCall("scaled_dot_product_attention", (real.ones(2),) * 3, {"dropout_p": share}, (), ()),
        lambda share: SideCall("multi_head_attention_forward", (real.ones(2),), {"dropout_p": share}, (), ()),
    ],
    ids=["dropout", "dropout of a module", "attention", "attention of several heads"],
)
def test_is_drawn__all_or_nothing_is_dropped__is_defined(call, share, draws):
    assert is_drawn(call(share)) is draws


@pytest.mark.parametrize(
    ("name", "kwargs", "draws"),
    [
        ("alpha_dropout", {"p": 0.5}, False),
        ("alpha_dropout", {"p": 0.5, "train": True}, True),
        ("feature_alpha_dropout", {"p": 0.5, "training": True}, True),
        ("dropout", {"p": 0.5, "train": False}, False),
        ("multi_head_attention_forward", {"dropout_p": 0.5, "training": False}, False),
        ("fractional_max_pool2d", {"_random_samples": real.zeros(1)}, False),
        ("fractional_max_pool3d", {}, True),
    ],
)
def test_is_drawn__by_the_arguments_of_the_call(name, kwargs, draws):
    assert is_drawn(SideCall(name, (real.zeros(2),), kwargs, (), ())) is draws


@pytest.mark.parametrize(("share", "outcome"), [(0.0, "misaligned"), (0.5, "aligned"), (1.0, "misaligned")])
def test_judge_program__module_of_attention__its_result_is_defined_unless_it_drops_some(share, outcome):
    def attention():
        value = random_tensor(dims=(3, 2, 4))
        return torch.nn.MultiheadAttention(4, 2, dropout=share)(value, value, value, need_weights=False)[0]

    def off(*args, **kwargs):
        found, weights = F.multi_head_attention_forward(*args, **kwargs)
        return found + 1, weights

    found = run_test(attention, substitute(**{"nn.functional.multi_head_attention_forward": off}), 1)
    assert [verdict.outcome for verdict in found] == [outcome]
