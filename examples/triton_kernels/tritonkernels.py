"""Four kernels in Triton: softmax, layer norm, a product and rope. One has a fault in the mask of its tail."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(x, out, columns, stride, block: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, block)
    # The fault: the tail of a row counts as 0 and not as minus infinity, so that it takes a part of the sum.
    values = tl.load(x + row * stride + at, mask=at < columns, other=0.0)
    weights = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, weights / tl.sum(weights, 0), mask=at < columns)


def softmax(x, dim):
    rows, columns = x.shape
    out = torch.empty_like(x)
    if x.numel():
        _softmax[(rows,)](x, out, columns, x.stride(0), triton.next_power_of_2(columns))
    return out


@triton.jit
def _layer_norm(x, weight, bias, out, columns, eps, block: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, block)
    inside = at < columns
    values = tl.load(x + row * columns + at, mask=inside, other=0.0)
    mean = tl.sum(values, 0) / columns
    centred = tl.where(inside, values - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / columns + eps)
    found = centred * scale * tl.load(weight + at, mask=inside) + tl.load(bias + at, mask=inside)
    tl.store(out + row * columns + at, found, mask=inside)


def layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    (columns,) = normalized_shape
    out = torch.empty_like(x)
    if x.numel():
        _layer_norm[(x.numel() // columns,)](x, weight, bias, out, columns, eps, triton.next_power_of_2(columns))
    return out


@triton.jit
def _matmul(a, b, out, m, n, k, size: tl.constexpr):
    rows = tl.program_id(0) * size + tl.arange(0, size)
    columns = tl.program_id(1) * size + tl.arange(0, size)
    total = tl.zeros((size, size), dtype=tl.float32)
    for start in range(0, k, size):
        inner = start + tl.arange(0, size)
        left = tl.load(
            a + rows[:, None] * k + inner[None, :], mask=(rows[:, None] < m) & (inner[None, :] < k), other=0.0
        )
        right = tl.load(
            b + inner[:, None] * n + columns[None, :], mask=(inner[:, None] < k) & (columns[None, :] < n), other=0.0
        )
        total += tl.sum(left[:, :, None] * right[None, :, :], 1)
    where = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(out + rows[:, None] * n + columns[None, :], total, mask=where)


def matmul(a, b):
    (m, k), n = a.shape, b.shape[1]
    out = torch.zeros((m, n), dtype=a.dtype, device=a.device)
    if out.numel():
        _matmul[(triton.cdiv(m, 16), triton.cdiv(n, 16))](a, b, out, m, n, k, 16)
    return out


@triton.jit
def _rope(x, cos, sin, out, tokens, half, block: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, block)
    inside = at < half
    angle = (row % tokens) * half + at
    left = tl.load(x + row * 2 * half + at, mask=inside, other=0.0)
    right = tl.load(x + row * 2 * half + half + at, mask=inside, other=0.0)
    c, s = tl.load(cos + angle, mask=inside, other=0.0), tl.load(sin + angle, mask=inside, other=0.0)
    tl.store(out + row * 2 * half + at, left * c - right * s, mask=inside)
    tl.store(out + row * 2 * half + half + at, right * c + left * s, mask=inside)


def rope(x, cos, sin):
    heads, tokens, size = x.shape
    out = torch.empty_like(x)
    if x.numel():
        _rope[(heads * tokens,)](x, cos, sin, out, tokens, size // 2, triton.next_power_of_2(size // 2))
    return out
