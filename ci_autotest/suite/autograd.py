"""Autograd: steps that it must refuse. A side that accepts one silently computes a wrong gradient."""

from ci_autotest import autotest, random_tensor, torch


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
