"""Run planted faults of wrappers on ranks, and print the verdicts as JSON.

``python -m tests.module_processes``: a process of its own, because ranks cannot be forked from one that has run a
backward pass.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import torch
import torch._dynamo  # Before the servers are forked, each of which would import it otherwise.
from torch import nn

import ci_autotest
from ci_autotest.backends.ranks.training.module_backend import ModuleBackend
from tests.engine import judged, record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.values.verdict import Verdict

_random = ci_autotest.random_tensor


class Net(nn.Module):
    """A module class of the user's, whose body is traced."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.second(torch.relu(self.first(x)))


class Tracking(nn.Module):
    """Keeps a running mean that its output does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Any) -> Any:
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.layer(x)


def own_class() -> Any:
    return Net()(_random(2, 6, 3))


def of_torch() -> Any:
    made = ci_autotest.torch.nn
    return made.Sequential(made.Linear(3, 4), made.ReLU(), made.Linear(4, 2))(_random(2, 6, 3))


def uneven() -> Any:
    return Net()(_random(2, 5, 3))


def mean_loss() -> Any:
    return torch.nn.functional.mse_loss(Net()(_random(2, 5, 3)), _random(2, 5, 2, requires_grad=False))


def sum_loss() -> Any:
    return Net()(_random(2, 6, 3)).square().sum()


def training() -> Any:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        model(_random(2, 6, 3, requires_grad=False)).square().mean().backward()
        optimizer.step()
    return model(_random(2, 6, 3, requires_grad=False))


def second_dimension() -> Any:
    made = ci_autotest.torch.nn
    return made.GRU(3, 2)(_random(3, 4, 6, 3), _random(3, 1, 6, 2))[0]


def sized() -> Any:
    x = _random(2, 7, 3)
    return Net()(x).view(x.size(0), -1)


def running_mean() -> Any:
    return Tracking()(_random(2, 6, 3, requires_grad=False))


def normalized() -> Any:
    made = ci_autotest.torch.nn
    return made.Sequential(made.Linear(3, 4), made.BatchNorm1d(4))(_random(2, 6, 3))


class Normalized(nn.Module):
    """A module class of the user's whose rows are not independent in training."""

    def __init__(self, momentum: float | None = 0.1) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=momentum)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.norm(self.layer(x)))


def normalized_in_a_class() -> Any:
    return Normalized()(_random(2, 8, 3))


def normalized_and_summed() -> Any:
    y = normalized()
    return y, y.argmax(0), y.cumsum(0)


def normalized_by_counts() -> Any:
    model = Normalized(momentum=None)
    return model(_random(2, 8, 3)), model(_random(2, 8, 3))


def normalized_loss() -> Any:
    return Normalized()(_random(2, 8, 3)).square().mean()


def normalized_in_training() -> Any:
    model = Normalized()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        model(_random(2, 8, 3, requires_grad=False)).square().mean().backward()
        optimizer.step()
    model.eval()
    return model(_random(2, 8, 3, requires_grad=False))


def normalized_by_instances() -> Any:
    """Keep statistics that are those of a rank, whatever synchronises the BatchNorm."""
    made = ci_autotest.torch.nn
    y = made.InstanceNorm1d(4, track_running_stats=True)(_random(3, 8, 4, 5))
    return made.BatchNorm1d(4)(y.sum(2) + y[:, :, 0])


class Scaling(Tracking):
    """Also keeps what is the same on all ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x: Any) -> Any:
        return super().forward(x * self.scale)


def normalized_after_a_mean() -> Any:
    return ci_autotest.torch.nn.BatchNorm1d(2)(Scaling()(_random(2, 6, 3, requires_grad=False)))


def dropped_out() -> Any:
    return torch.nn.functional.dropout(Net()(_random(2, 6, 3)))


def evaluated() -> Any:
    made = ci_autotest.torch.nn
    model = made.Sequential(made.Linear(3, 4), made.BatchNorm1d(4))
    model.eval()
    return model(_random(2, 6, 3))


def no_module() -> Any:
    return torch.relu(_random(2, 6, 3))


def one_row() -> Any:
    return Net()(_random(2, 1, 3))


def two_batches() -> Any:
    return Net()(_random(2, 6, 3)) + _random(1, 2)


def over_the_batch() -> Any:
    return torch.softmax(Net()(_random(2, 6, 3)), 0)


_BODIES = (
    own_class, of_torch, uneven, mean_loss, sum_loss, training, second_dimension, sized, running_mean, evaluated, normalized,
    normalized_and_summed, normalized_in_a_class, normalized_by_counts, normalized_loss, normalized_in_training, over_the_batch, dropped_out,
    no_module, one_row, two_batches,
)  # fmt: skip
_PLANTED: dict[str, Callable[[], Any]] = {
    "right": of_torch,
    "sum_instead_of_average": of_torch,
    "buffers_not_broadcast": normalized,
    "unused_on_one_rank": of_torch,
    "unused_and_not_looked_for": of_torch,
    "other_seed": of_torch,
    "dropped_bucket": own_class,
    "no_sync_left_on": training,
    "bfloat16_gradients": of_torch,
    "fsdp_reduced_in_bfloat16": own_class,
    "nothing_returned": of_torch,
    "raises_in_backward": normalized,
    "raises_in_backward_on_one_rank": normalized,
    "other_momentum": normalized,
    "other_momentum_of_a_buffer": running_mean,
    "other_eps": normalized,
    "evaluated_on_rank_0": normalized,
    "evaluated_on_rank_1": normalized,
    "fsdp_other_momentum": normalized,
    "fsdp_other_count": evaluated,
    "within_others": normalized,
    "within_others_that_scale": normalized,
    "synchronised": normalized,
    "synchronised_without_gradient": normalized,
    "synchronised_with_other_momentum": normalized,
    "synchronised_by_torch": normalized,
    "fsdp_synchronised": normalized_after_a_mean,
    "fsdp_synchronised_other_buffer": normalized_after_a_mean,
    "fsdp_synchronised_by_torch": normalized,
    "fsdp_synchronised_and_refused": normalized,
}
#: Other bodies that a wrapper is tried on.
_ALSO: dict[str, Sequence[Callable[[], Any]]] = {
    "synchronised": (normalized_and_summed, normalized_by_instances, normalized_after_a_mean)
}
#: Faults that must also be found where rows are not independent.
_WITH_STATISTICS: dict[str, Callable[[], Any]] = {
    "sum_instead_of_average": normalized,
    "other_seed": normalized,
    "dropped_bucket": normalized,
    "no_sync_left_on": normalized_in_training,
    "bfloat16_gradients": normalized_in_a_class,
    "fsdp_reduced_in_bfloat16": normalized_in_a_class,
}


def _verdict(body: Callable[[], Any], backend: ModuleBackend) -> Verdict:
    batch = {0: 1, 1: 1} if body is second_dimension else None
    return judged(record(body, profiles=(), test=body.__name__, batch=batch), backend).verdict


def _backend(name: str) -> ModuleBackend:
    if name in {"ddp", "fsdp"}:
        return ModuleBackend(name, name, 3 if name == "ddp" else 2)
    backend = "fsdp" if name.startswith("fsdp_") else "ddp"
    return ModuleBackend(name, backend, 2, f"tests.module_wrappers:{name}")


def main() -> None:
    """Print the verdicts of right wrappers on each body, of each planted fault, and the processes that ran them."""
    names = sys.argv[1:] or ["ddp", "fsdp", *_PLANTED]
    # All of them before anything runs here.
    backends = {name: _backend(name) for name in names}
    found: dict[str, Any] = {}
    for name, backend in backends.items():
        if name in _PLANTED:
            found[name] = _verdict(_PLANTED[name], backend)
            if name in _WITH_STATISTICS:
                found[f"{name} with statistics"] = _verdict(_WITH_STATISTICS[name], backend)
            for body in _ALSO.get(name, ()):
                found[f"{name} on {body.__name__}"] = _verdict(body, backend)
        else:
            found[name] = {body.__name__: _verdict(body, backend) for body in _BODIES}
        backend.close()
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # As a worker ends: what was not closed ends with it.
