"""Nests of Python values, which calls take and return: tensors in tuples, lists and dictionaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a value with every tensor in it changed; tuples, also those with names, and lists keep their type."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) is dict:
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        items = [mapped(item, change) for item in value]
        if type(value) in {list, tuple}:
            return type(value)(items)
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def leaves(value: Any) -> Iterator[Any]:
    """Yield the values in a nest that are no tuple, list or dictionary, in order."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in a value, in order."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def holds_tensor(value: object) -> bool:
    """Whether a value is a tensor, or a tuple or list that contains one."""
    if isinstance(value, torch.Tensor):
        return True
    return isinstance(value, tuple | list) and any(map(holds_tensor, value))
