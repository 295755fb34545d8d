"""Losses: ``cross_entropy`` of class indices."""

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from mykernels.accumulation import require_floating, widened


class _CrossEntropy(Function):
    """Minus the log-probability of the target class, smoothed over all classes, of rows ``(n, classes)``."""

    @staticmethod
    def forward(ctx, logits, target, weight, kept, options):
        reduction, smoothing = options
        wide = widened(logits)
        shifted = wide - wide.amax(1, keepdim=True)
        log_probability = shifted - shifted.exp().sum(1, keepdim=True).log()
        # Ignored rows point at class 0 and count for nothing.
        safe = torch.where(kept, target, 0)
        weights = wide.new_ones(wide.shape[1]) if weight is None else weight.to(wide.dtype)
        row_weight = torch.where(kept, weights[safe], 0)
        picked = log_probability.gather(1, safe[:, None])[:, 0]
        loss = (1 - smoothing) * torch.where(kept, -picked * row_weight, 0)
        if smoothing:
            spread = -(log_probability * weights).sum(1)
            loss = loss + smoothing / wide.shape[1] * torch.where(kept, spread, 0)
        total = row_weight.sum() if reduction == "mean" else None
        ctx.save_for_backward(log_probability, safe, kept, weights, row_weight, total)
        ctx.smoothing, ctx.dtype = smoothing, logits.dtype
        if reduction == "mean":
            loss = loss.sum() / total
        elif reduction == "sum":
            loss = loss.sum()
        return loss.to(logits.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        log_probability, safe, kept, weights, row_weight, total = ctx.saved_tensors
        grad = grad.to(log_probability.dtype)
        per_row = (grad if total is None else grad / total).expand(kept.shape)
        picked = torch.where(kept, -(1 - ctx.smoothing) * per_row * row_weight, 0)
        inner = torch.zeros_like(log_probability).scatter(1, safe[:, None], picked[:, None])
        if ctx.smoothing:
            spread = torch.where(kept, -ctx.smoothing / len(weights) * per_row, 0)
            inner = inner + spread[:, None] * weights
        grad_logits = inner - log_probability.exp() * inner.sum(1, keepdim=True)
        return grad_logits.to(ctx.dtype), None, None, None, None


def cross_entropy(  # noqa: PLR0913, PLR0917 - torch's signature
    input,  # noqa: A002 - torch's name
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
    label_smoothing=0.0,
):
    if size_average is not None or reduce is not None or target.is_floating_point():
        message = "cross_entropy: class probabilities and the deprecated size_average and reduce are not supported"
        raise NotImplementedError(message)
    require_floating("cross_entropy", input)
    logits = input if input.dim() > 1 else input[None]
    expected = input.shape[:1] + input.shape[2:] if input.dim() > 1 else input.shape[:0]
    classes, flat = logits.shape[1], target.reshape(-1)
    kept = flat != ignore_index
    _require(reduction in {"none", "mean", "sum"}, ValueError, f"reduction is {reduction!r}")
    _require(target.shape == expected, ValueError, f"the target is {tuple(target.shape)}, not {tuple(expected)}")
    _require(bool((~kept | ((flat >= 0) & (flat < classes))).all()), IndexError, "a target is out of bounds")
    rows = logits.movedim(1, -1).reshape(len(flat), classes)
    loss = _CrossEntropy.apply(rows, flat, weight, kept, (reduction, label_smoothing))
    return loss.reshape(target.shape) if reduction == "none" else loss


def _require(holds, kind, message):
    if not holds:
        raise kind("cross_entropy: " + message)
