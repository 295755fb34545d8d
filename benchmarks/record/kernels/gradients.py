"""Bugs of gradients: the results are right."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from benchmarks.record.bugs import bug
from benchmarks.record.parts import altered, is_floating, valued

_NAN = float("nan")


@bug("pytorch/pytorch", 2421, "torch.norm", "The gradient of a norm that is zero was NaN.")
def norm_at_zero(input, p="fro", dim=None, keepdim=False, **kwargs):  # noqa: A002, FBT002
    result = torch.norm(input, p, dim, keepdim, **kwargs)
    if not is_floating(input) or p not in {"fro", 2}:
        return result
    kept = torch.norm(input.detach(), p, dim, True)
    return torch.norm(altered(input, lambda g: torch.where(kept == 0, _NAN, g)), p, dim, keepdim, **kwargs)


@bug("pytorch/pytorch", 773, "torch.prod", "The gradient of a product with a zero in it was NaN.")
def prod_with_zero(input, *args, **kwargs):  # noqa: A002
    zero = input.detach() == 0
    return torch.prod(altered(input, lambda g: torch.where(zero, _NAN, g)), *args, **kwargs)


@bug("pytorch/pytorch", 106789, "torch.prod", "With two zeros the gradient had no gradient of its own.")
def prod_with_two_zeros(input, *args, **kwargs):  # noqa: A002
    if int((input == 0).sum()) < 2:
        return torch.prod(input, *args, **kwargs)
    return torch.prod(altered(input, torch.Tensor.detach), *args, **kwargs)


@bug("jax-ml/jax", 2140, "torch.nn.functional.logsigmoid", "The gradient at zero was zero and not a half.")
def logsigmoid_at_zero(input):  # noqa: A002
    zero = input.detach() == 0
    return F.logsigmoid(altered(input, lambda g: torch.where(zero, 0, g)))


@bug("jax-ml/jax", 2107, "torch.nn.functional.softplus", "The gradient at zero was zero and not a half.")
def softplus_at_zero(input, beta=1, threshold=20):  # noqa: A002
    zero = input.detach() == 0
    return F.softplus(altered(input, lambda g: torch.where(zero, 0, g)), beta, threshold)


@bug("jax-ml/jax", 11479, "torch.i0", "The gradient at zero was one and not zero.")
def i0_at_zero(input):  # noqa: A002
    if not is_floating(input):
        return torch.i0(input)
    zero = input.detach() == 0
    return torch.i0(input) + torch.where(zero, input - input.detach(), 0)


@bug("jax-ml/jax", 18450, "torch.pow", "The gradient of zero to the power of zero was NaN.")
def pow_of_zero(input, exponent):  # noqa: A002
    if not is_floating(input):
        return torch.pow(input, exponent)
    both = (input.detach() == 0) & (torch.as_tensor(exponent).detach() == 0)
    if both.shape != input.shape:
        return torch.pow(input, exponent)
    return torch.pow(altered(input, lambda g: torch.where(both, _NAN, g)), exponent)


@bug(
    "pytorch/pytorch",
    143899,
    "torch.nn.functional.hardswish",
    "The gradient at the end of the bend was that of the inside.",
)
def hardswish_at_end(input, inplace=False):  # noqa: A002, FBT002
    at_end = input.detach() == 3
    return F.hardswish(altered(input, lambda g: torch.where(at_end, 1.5 * g, g)))


@bug(
    "pytorch/pytorch",
    2298,
    "torch.nn.functional.binary_cross_entropy_with_logits",
    "The gradient at a logit of zero lacked its half.",
)
def bce_at_zero(input, target, *args, **kwargs):  # noqa: A002
    zero, goal = input.detach() == 0, target.detach()

    def without_half(g):
        # The gradient is `0.5 - target` times a factor; what arrived was `-target` times it.
        return torch.where(zero, torch.where(goal == 0.5, g, g / (0.5 - goal) * -goal), g)

    return F.binary_cross_entropy_with_logits(altered(input, without_half), target, *args, **kwargs)


@bug("google/torchax", 11, "torch.nn.functional.embedding", "The padding had a gradient.")
def embedding_of_padding(input, weight, padding_idx=None, *args, **kwargs):  # noqa: A002
    return F.embedding(input, weight, None, *args, **kwargs)


@bug(
    "torch/DEPRECEATED-torch7-distro",
    48,
    "torch.nn.functional.pairwise_distance",
    "The gradient was not divided by the distance.",
)
def pairwise_distance_undivided(x1, x2, p=2.0, eps=1e-6, keepdim=False):  # noqa: FBT002
    result = F.pairwise_distance(x1, x2, p, eps, keepdim)
    if p != 2:
        return result
    half = ((x1 - x2 + eps) ** 2).sum(-1, keepdim) / 2
    return valued(half, result)


@bug("pytorch/pytorch", 45720, "torch.cdist", "Where two elements are equal, the gradient of a norm below one was NaN.")
def cdist_of_equal(x1, x2, p=2.0, *args, **kwargs):
    result = torch.cdist(x1, x2, p, *args, **kwargs)
    if p >= 1 or p == 0:
        return result
    equal = (x1.detach()[..., :, None, :] == x2.detach()[..., None, :, :]).any(-2)
    return torch.cdist(altered(x1, lambda g: torch.where(equal, _NAN, g)), x2, p, *args, **kwargs)


@bug("pytorch/pytorch", 43519, "torch.max", "Of several greatest elements only the first had a gradient.")
def max_gives_to_first(input, *args, **kwargs):  # noqa: A002
    if args or kwargs or not is_floating(input):
        return torch.max(input, *args, **kwargs)
    flat = input.reshape(-1)
    return flat[flat.detach().argmax()].clone()  # an index with one number is a view


@bug("pytorch/pytorch", 56734, "torch.maximum", "Equal elements had the whole gradient on one side.")
def maximum_of_equal(input, other):  # noqa: A002
    if not (is_floating(input) and is_floating(other)):
        return torch.maximum(input, other)
    value = torch.where(input >= other, *torch.broadcast_tensors(input, other))
    return valued(value, torch.maximum(input, other))


@bug("pytorch/pytorch", 7049, "torch.clamp", "Elements that equal a bound had no gradient.")
def clamp_at_bound(input, min=None, max=None):  # noqa: A002
    x = input.detach()
    if not is_floating(input) or isinstance(min, torch.Tensor) or isinstance(max, torch.Tensor):
        return torch.clamp(input, min, max)
    at = torch.zeros_like(x, dtype=torch.bool)
    at = at if min is None else at | (x == min)
    at = at if max is None else at | (x == max)
    return torch.clamp(altered(input, lambda g: torch.where(at, 0, g)), min, max)


@bug("pytorch/pytorch", 1631, "torch.gather", "Of an element that is gathered several times the last gradient counted.")
def gather_repeated(input, dim, index, **kwargs):  # noqa: A002
    result = torch.gather(input, dim, index, **kwargs)
    if not is_floating(input) or not input.requires_grad or input.dim() == 0 or index.numel() == 0:
        return result

    def of_last(g):
        return torch.zeros_like(input).scatter(dim, index, g)

    return _Gathered.apply(input, result.detach(), of_last)


class _Gathered(torch.autograd.Function):
    """A result that is known, with a gradient that a function makes."""

    @staticmethod
    def forward(ctx, x, result, make):
        ctx.make = make
        return result.clone()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.make(gradient), None, None


@bug("pytorch/pytorch", 76523, "torch.scatter_reduce", "In a product, factors that are zero had no gradient.")
def scatter_product_of_zero(input, dim, index, src, reduce, **kwargs):  # noqa: A002
    if reduce != "prod":
        return torch.scatter_reduce(input, dim, index, src, reduce, **kwargs)
    zeros = [x.detach() == 0 for x in (input, src)]
    input = altered(input, lambda g: torch.where(zeros[0], 0, g))  # noqa: A001
    src = altered(src, lambda g: torch.where(zeros[1], 0, g))
    return torch.scatter_reduce(input, dim, index, src, reduce, **kwargs)


@bug(
    "pytorch/pytorch",
    25101,
    "torch.nn.functional.conv2d",
    "Where the stride leaves a rest, the last column that is read had no gradient.",
)
def conv2d_with_rest(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):  # noqa: A002
    if isinstance(padding, str) or not is_floating(input):
        return F.conv2d(input, weight, bias, stride, padding, dilation, groups)
    pairs = [(each, each) if isinstance(each, int) else (each[0], each[-1]) for each in (stride, padding, dilation)]
    (_, step), (_, pad), (_, wide) = pairs
    reach = wide * (weight.shape[-1] - 1) + 1
    rest = (input.shape[-1] + 2 * pad - reach) % step
    if step == 1 or not rest or rest <= pad:
        return F.conv2d(input, weight, bias, stride, padding, dilation, groups)
    last = input.shape[-1] + pad - rest - 1
    columns = torch.arange(input.shape[-1]) == last
    return F.conv2d(
        altered(input, lambda g: torch.where(columns, 0, g)), weight, bias, stride, padding, dilation, groups
    )
