"""Autograd: modes and second derivatives, and steps that it must refuse.

A side that accepts such a step silently computes a wrong gradient.
"""

from ci_autotest import random, random_tensor, torch
from ci_autotest.suite import autotest


@autotest(raises=RuntimeError, match="modified by an inplace operation")
def value_that_backward_needs_is_changed():
    x = random_tensor()
    y = torch.exp(x)
    y.mul_(2)
    y.sum().backward()


@autotest(raises=RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation")
def leaf_is_changed():
    x = random_tensor()
    x.mul_(2)


@autotest(raises=RuntimeError, match="moved into the graph interior")
def leaf_is_moved_into_the_graph():
    n = 4
    x, weight = random_tensor(1, n), random_tensor(1, n)
    y = x * 2
    x.requires_grad_(False)
    x.add_(weight)
    y.sum().backward()


@autotest(raises=RuntimeError, match="backward through the graph a second time")
def backward_is_run_twice():
    x = random_tensor()
    loss = (x * x).sum()
    loss.backward()
    loss.backward()


@autotest()
def without_gradients():
    # What is computed inside has no gradient; what comes after has one again.
    x, y = random_tensor(ndim=2), random_tensor(ndim=1, dim0=1)
    with torch.no_grad():
        z = torch.softmax(x, -1) * y
        scaled = torch.nn.functional.layer_norm(x, x.shape[1:])
    return z, scaled, x * z, torch.exp(x.detach()) + y


@autotest()
def with_autocast():
    # Of one size: each one costs a kernel of its own.
    x, weight = random_tensor(dims=(2, 8)), random_tensor(dims=(3, 8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = torch.nn.functional.linear(x, weight)
        z = torch.softmax(y, -1)
    return z, torch.exp(y)


def second(y, x):
    # The gradient as a result: the backward pass through it gives second derivatives.
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


@autotest(forms=("autocast", "second_derivatives"))
def second_derivatives():
    x = random_tensor()
    return (
        second(torch.sin(x), x), second(torch.exp(x), x), second(x * x * x, x), second(torch.sigmoid(x), x),
        second(torch.nn.functional.gelu(x), x), second(torch.nn.functional.softplus(x), x), second(torch.tanh(x), x),
    )  # fmt: skip


@autotest(forms=("autocast", "second_derivatives"))
def second_derivatives_of_sums():
    x = random_tensor(ndim=2)
    return (
        second(torch.softmax(x, -1) * x, x), second(torch.logsumexp(x, -1), x), second(torch.prod(x, -1), x),
        second(torch.nn.functional.log_softmax(x, 0) * x, x), second(torch.var(x + 1, -1, correction=0), x),
    )  # fmt: skip


@autotest(forms=("autocast", "second_derivatives"))
def second_derivatives_of_products():
    size = random(1, 5).to(int)
    x, y = random_tensor(dims=(size, size)), random_tensor(dims=(size, size))
    planes = x[None, None]
    return (
        second((x @ y) ** 2, x), second(torch.addmm(x, x, y) ** 2, y), second(torch.einsum("ij,jk->ik", x, y) ** 2, x),
        second(torch.nn.functional.conv2d(planes, y[None, None]) ** 2, x),
    )  # fmt: skip
