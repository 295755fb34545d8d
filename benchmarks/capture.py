"""Training steps while their operator calls are captured, relative to the same steps without."""

from __future__ import annotations

import runpy
import statistics
import sys
import time
from contextlib import nullcontext
from operator import truediv
from pathlib import Path

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ci_autotest.call_capture.mode import CallMode

#: How much longer a captured step may take.
GOAL = 1.3
ROUNDS = 12
STEPS = 4
_EXAMPLES = Path(__file__).parent.parent / "examples" / "capture"


class Empty(TorchFunctionMode):
    """What torch itself takes to call a mode."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **kwargs) if kwargs else func(*args)


def main() -> int:
    torch.set_num_threads(1)
    missed = 0
    print("model                              calls a step   step ms   captured   an empty mode   raw to raw")
    for name, step in _models().items():
        calls, raw_s, ratio, empty, control = _measured(step)
        is_void = not 0.97 <= control <= 1.03
        missed += ratio > GOAL or is_void
        verdict = "  void, too noisy" if is_void else "  MISSED" if ratio > GOAL else ""
        print(f"{name:34} {calls:>12}  {raw_s * 1e3:8.2f}   {ratio:8.2f}   {empty:13.2f}   {control:10.2f}{verdict}")
    return missed


def _models():
    transformer = runpy.run_path(str(_EXAMPLES / "train.py"))["Transformer"]
    residual = runpy.run_path(str(_EXAMPLES / "residual.py"))["Residual"]
    return {
        "transformer, width 48 (example)": _of_tokens(transformer(), 8, 24),
        "transformer, width 192": _of_tokens(transformer(length=64, width=192, heads=6, blocks=2), 8, 64),
        "residual block, 12 to 20 (example)": _of_images(residual(12, 20), (4, 12, 22, 22)),
        "residual block, 64 to 128": _of_images(residual(64, 128), (4, 64, 56, 56)),
    }


def _of_tokens(model, batch: int, length: int):
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(97, (batch, length + 1))

    def step() -> None:
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.reshape(-1, 97), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _of_images(model, shape: tuple[int, ...]):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images, labels = torch.rand(shape), torch.randint(10, shape[:1])

    def step() -> None:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _measured(step) -> tuple[int, float, float, float, float]:
    """Return calls a step, seconds of a raw step, and the ratios of captured, observed and raw steps to raw ones.

    The first captured steps are measured too: they look at every tensor.
    """
    mode = CallMode()
    step()
    sides = {"raw": (nullcontext(), []), "captured": (mode, []), "empty": (Empty(), []), "control": (nullcontext(), [])}
    names = list(sides)
    for turn in range(ROUNDS):
        for name in names[turn % 4 :] + names[: turn % 4]:
            context, seconds = sides[name]
            with context:
                seconds.append(_seconds(step))
    raw = sides["raw"][1]
    ratios = [statistics.median(map(truediv, sides[name][1], raw)) for name in names[1:]]
    return mode.capture().count // (ROUNDS * STEPS), statistics.median(raw), *ratios


def _seconds(step) -> float:
    begun = time.process_time()
    for _ in range(STEPS):
        step()
    return (time.process_time() - begun) / STEPS


if __name__ == "__main__":
    sys.exit(main())
