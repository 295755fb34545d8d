"""Properties of indices and sets: compare what they select."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from ci_autotest.alignment.properties.call import SideCall


def _dim(call: SideCall) -> int:
    positions = {"topk": 2, "kthvalue": 2}
    found = call.argument(positions.get(call.name, 1), "dim", 0 if call.name == "msort" else -1)
    return -1 if found is None or isinstance(found, bool) else int(found)


def selects(call: SideCall) -> str:
    """Check that the indices select the same values from the input as the reference's."""
    position = len(call.outputs) - 1
    found, expected = call.output(position), call.reference[position]
    if found is None or expected is None or not found.numel():
        return ""
    source = call.input.detach()
    # Without a dimension the index counts in the flattened input.
    if call.name in {"argmax", "argmin"} and call.argument(1, "dim", None) is None:
        source = source.reshape(-1)
    dim = 0 if source.dim() <= 1 else _dim(call)
    source = source.reshape(-1) if source.dim() == 0 else source
    if int(found.min()) < 0 or int(found.max()) >= source.shape[dim]:
        return f"an index is out of range: {source.shape[dim]} elements"
    picked = [_gathered(source, dim, index.long()) for index in (found, expected)]
    # NaN is not equal to itself, but both indices may select one.
    same = (picked[0] == picked[1]) | (picked[0].isnan() & picked[1].isnan())
    return "" if bool(same.all()) else "the indices select other values than the reference's"


def _gathered(source: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    if index.dim() == source.dim():
        return source.gather(dim, index)
    # Without `keepdim` the index lacks the dimension.
    return source.gather(dim, index.unsqueeze(dim)).squeeze(dim)


def selects_distinct(call: SideCall) -> str:
    """Check ``selects``, and that no element is selected twice."""
    problem = selects(call)
    found = call.output(len(call.outputs) - 1)
    if problem or found is None or found.dim() == 0 or not found.numel():
        return problem
    ordered = found.sort(_dim(call)).values
    steps = ordered.diff(dim=_dim(call))
    return "an element is selected twice" if bool((steps == 0).any()) else ""


def selects_value(call: SideCall) -> str:
    """Check that the indices select the values that are returned with them."""
    values, found = call.output(0), call.output(1)
    if values is None or found is None or not found.numel() or call.input.dim() == 0:
        return ""
    if int(found.min()) < 0 or int(found.max()) >= call.input.shape[_dim(call)]:
        return "an index is out of range"
    picked = call.input.detach().gather(_dim(call), found.long())
    same = (picked == values) | (picked.isnan() & values.isnan())
    return "" if bool(same.all()) else "the indices do not select the values returned with them"


def most_frequent(call: SideCall) -> str:
    """Check that the values occur as often as the reference's, and that the indices select them."""
    values, expected = call.output(0), call.reference[0]
    source = call.input.detach()
    if values is None or expected is None or source.dim() == 0 or values.shape != expected.shape or not values.numel():
        return ""
    dim = _dim(call)
    kept = [one if one.dim() == source.dim() else one.unsqueeze(dim) for one in (values.detach(), expected.detach())]
    counts = [(source == one).sum(dim) for one in kept]
    same = (counts[0] == counts[1]) & (counts[1] > 0)
    if not bool((same | (kept[0].isnan() & kept[1].isnan()).squeeze(dim)).all()):
        return "a value is not one of the most frequent"
    found = call.output(1)
    if found is None:
        return ""
    if int(found.min()) < 0 or int(found.max()) >= source.shape[dim]:
        return "an index is out of range"
    picked = _gathered(source, dim, found.long())
    same = (picked == values) | (picked.isnan() & values.isnan())
    return "" if bool(same.all()) else "the indices do not select the values returned with them"


def selects_pooled(call: SideCall) -> str:
    """Check that the indices into the flattened dimensions select the values that are returned with them."""
    values, found = call.output(0), call.output(1)
    if values is None or found is None or not found.numel():
        return ""
    # `max_pool2d` has the number of dimensions before its last letter.
    spatial = int(call.name.removesuffix("_with_indices")[-2])
    source = call.input.detach().flatten(-spatial)
    index = found.long().flatten(-spatial)
    if int(index.min()) < 0 or int(index.max()) >= source.shape[-1]:
        return "an index is out of range"
    picked = source.gather(-1, index).reshape(values.shape)
    same = (picked == values) | (picked.isnan() & values.isnan())
    return "" if bool(same.all()) else "the indices do not select the values returned with them"


def same_set(call: SideCall) -> str:
    """Check the distinct elements in any order, that the inverse restores the input, and the counts."""
    found, expected = call.output(0), call.reference[0]
    # With a dimension the elements are whole slices, which sorting would take apart.
    if found is None or expected is None or call.argument(4, "dim", None) is not None:
        return ""
    order, other = found.sort(), expected.sort()
    if found.shape != expected.shape or not torch.equal(order.values, other.values):
        return "the distinct elements differ from the reference's"
    for position in range(1, len(call.outputs)):
        extra, theirs = call.output(position), call.reference[position]
        if extra is None or theirs is None:
            continue
        if extra.shape == call.input.shape and not torch.equal(found[extra], call.input.detach()):
            return "the inverse does not restore the input"
        # The inverse has the shape of the input, and the counts have that of the distinct elements.
        is_count = extra.shape == found.shape and extra.shape != call.input.shape
        if is_count and not torch.equal(extra[order.indices], theirs[other.indices]):
            return "the counts do not match their elements"
    return ""
