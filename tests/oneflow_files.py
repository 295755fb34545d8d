"""Thirty small test files in the style of OneFlow's AutoTest: every name and habit that its own files have.

``EXPECTED`` has what a run with the candidate ``torch`` gives each test.
"""

from __future__ import annotations

HEAD = """import unittest

import oneflow as flow
import oneflow.unittest
from oneflow.test_utils.automated_test_util import *


@flow.unittest.skip_unless_1n1d()
class TestIt(flow.unittest.TestCase):
"""
#: Bodies of one class below ``HEAD``, or whole files if they have imports of their own.
FILES = {
    "operators": """
    @autotest(n=4, check_graph=True)
    def test_function(test_case):
        device = random_device()
        x = random_tensor().to(device)
        return torch.tanh(x)

    @autotest(n=4)
    def test_method(test_case):
        return random_tensor(ndim=2).to(cpu_device()).t()
""",
    "modules": """
    @autotest(n=4)
    def test_module(test_case):
        m = torch.nn.LeakyReLU(negative_slope=random() | nothing())
        m.train(random())
        m.to(gpu_device())
        return m(random_tensor())

    @autotest(n=2)
    def test_recurrent(test_case):
        m = torch.nn.GRU(input_size=constant(3), hidden_size=random(1, 4), num_layers=random(1, 3) | nothing())
        return m(random_tensor(3, 2, 2, 3))[0]

    @autotest(n=4)
    def test_linear(test_case):
        width = random(1, 5)
        m = torch.nn.Linear(width, random(1, 4), bias=random_bool())
        return m(random_tensor(ndim=2, dim1=width))
""",
    "sizes": """
    @autotest(n=6)
    def test_beyond_ndim(test_case):
        x = random_tensor(ndim=2, dim0=3, dim1=2, dim2=4, dim4=5)
        test_case.assertEqual(list(x.shape), [3, 2])
        return x + 1

    @autotest(n=6, profiles=())
    def test_first_is_one(test_case):
        x = random_tensor(ndim=3)
        test_case.assertEqual(x.shape[0], 1)
        return x.exp()

    @autotest(n=6)
    def test_free(test_case):
        return random_tensor(ndim=random(1, 4), dim0=None).sin()

    @autotest(n=2)
    def test_empty(test_case):
        return random_tensor(4, 2, 0, 3, 1).abs()
""",
    "values": """
    @autotest(n=4)
    def test_value(test_case):
        ndim = random(2, 5).to(int).value()
        x = random_tensor(ndim, *[random(1, 4).to(int).value() for _ in range(ndim)])
        return x.flip(random(0, ndim).to(int).value())

    @autotest(n=4)
    def test_limits_and_pinned_memory(test_case):
        x = random_tensor(2, 2, 3, pin_memory=True).pin_memory()
        return x.clamp(max=flow.finfo(flow.float32).max) * flow.iinfo(flow.int8).max

    @autotest(n=4)
    def test_eval(test_case):
        size = random(1, 50).to(int)
        drawn = [size.eval() for _ in range(8)]
        test_case.assertGreater(len(set(drawn)), 1)
        test_case.assertEqual(size.value(), drawn[-1])
        return random_tensor(1, dim0=size) * 2

    WIDTH = random(2, 9).to(int).value()

    @autotest(n=4)
    def test_value_of_a_class(test_case):
        return random_tensor(2, 2, test_case.WIDTH).sin()

    class random_even(generator):
        def __init__(self, high):
            self.high = high
            super().__init__([high])

        def _calc_value(self):
            return 2 * random(1, self.high).to(int).value()

    @autotest(n=4)
    def test_derived_generator(test_case):
        x = random_tensor(1, dim0=test_case.random_even(4))
        return x.chunk(2)
""",
    "arithmetic": """
    @autotest(n=4)
    def test_arithmetic(test_case):
        k = random(1, 3) * 2 + 1
        return random_tensor(2, dim0=k, dim1=k - 1).cumsum(0)
""",
    "alternatives": """
    @autotest(n=6)
    def test_or(test_case):
        return torch.clamp(random_tensor(), min=random(0, 1).to(float) | nothing(), max=constant(2.0))

    @autotest(n=6)
    def test_oneof(test_case):
        reduction = oneof("none", "sum", "mean", nothing())
        return torch.nn.functional.mse_loss(random_tensor(2, 3, 4), random_tensor(2, 3, 4), reduction=reduction)

    @autotest(n=6)
    def test_callable(test_case):
        return oneof(torch.sin, torch.cos, possibility=0.5)(random_tensor())

    @autotest(n=6)
    def test_condition(test_case):
        x = random_tensor() + 1
        if oneof(True, False):
            x.add_(1)
        if random_bool():
            x.mul_(2)
        return x

    @autotest(n=6)
    def test_argument_of_oneflow_alone(test_case):
        return torch.nn.Softshrink(alpha=random() | nothing())(random_tensor())

    @autotest(n=6)
    def test_random_or_nothing(test_case):
        return torch.nn.functional.elu(random_tensor(), alpha=random_or_nothing(1, 3))
""",
    "types": """import unittest
from typing import Tuple, Union

import oneflow as flow
from oneflow.nn.common_types import _size_1_t, _size_2_t
from oneflow.test_utils.automated_test_util import *

SIZE = Union[int, Tuple[Union[int, type(None)], int]]


class TestIt(flow.unittest.TestCase):
    @autotest(n=4)
    def test_common_types(test_case):
        return torch.nn.AvgPool1d(kernel_size=random(1, 3).to(_size_1_t))(random_tensor(3, 1, 2, 8))

    @autotest(n=4)
    def test_tuple(test_case):
        m = torch.nn.AvgPool2d(random(1, 3).to(_size_2_t), stride=random(1, 3).to(Tuple[int, int]))
        return m(random_tensor(4, 1, 2, 8, 8))

    @autotest(n=4)
    def test_lists(test_case):
        size, step = random(2, 4).to(_size_2_t), random(1, 3).to(Tuple[int, int]) | nothing()
        y = torch.nn.MaxPool2d(kernel_size=size, stride=step)(random_tensor(4, 1, 2, 8, 8))
        test_case.assertIsInstance(size.value(), (int, list))
        test_case.assertNotIsInstance(step.value(), tuple)
        return y

    @autotest(n=4)
    def test_union(test_case):
        return torch.nn.AdaptiveAvgPool2d(output_size=random().to(SIZE))(random_tensor(4, 1, 2, 6, 6))
""",
    "ranges": """
    @autotest(n=6)
    def test_range_of_oneflow(test_case):
        return torch.nn.functional.binary_cross_entropy(random_tensor(1, 4), random_tensor(1, 4, requires_grad=False))

    @autotest(n=6)
    def test_bounds(test_case):
        return random_tensor(low=-0.5, high=0.5).acos()

    @autotest(n=4)
    def test_only_high(test_case):
        index = random_tensor(1, 4, high=3, dtype=int, requires_grad=False)
        return random_tensor(2, 3, 2)[index]

    @autotest(n=2)
    def test_one_value(test_case):
        return random_tensor(1, 5, low=0, high=0).exp()
""",
    "assertions": """import numpy as np
import oneflow as flow
from oneflow.test_utils.automated_test_util import *


class TestIt(flow.unittest.TestCase):
    @autotest(n=12)
    def test_no_negative_numbers(test_case):
        x = random_tensor(2)
        test_case.assertTrue(np.allclose(flow.sqrt(x.oneflow).numpy(), torch.sqrt(x.pytorch).numpy()))

    @autotest(n=12)
    def test_no_empty_dimension(test_case):
        x = random_tensor(2, dim0=None)
        return x[random(0, x.size(0)).to(int)]
""",
    "dtypes": """
    @autotest(n=6, auto_backward="auto")
    def test_random_dtype(test_case):
        return random_tensor().to(random_dtype(["float", "index", "unsigned"])).abs()

    @autotest(n=4, check_dtype=True)
    def test_int(test_case):
        return random_tensor(dtype=int).to(flow.int32) * 3

    @autotest(n=4, include_complex=True)
    def test_complex(test_case):
        return random_tensor(2) * 2
""",
    "choices": """
    @autotest(n=4)
    def test_choice(test_case):
        return choice_tensor([0.0, 0.5, 1.0], (2, 3), dtype=float, requires_grad=True).sin()

    @autotest(n=2)
    def test_indices(test_case):
        return random_tensor(2, 5, 2).index_select(0, choice_tensor(5, 3, replace=False))
""",
    "gradients": """
    @autotest(n=4, auto_backward=False)
    def test_grad(test_case):
        x = random_tensor(2, 2, 3)
        (x ** 2).sum().backward()
        return x.grad

    @autotest(n=4, check_grad_use_random_data=False)
    def test_ones(test_case):
        return random_tensor(2, requires_grad=random_bool()).tanh()

    @autotest(n=4, auto_backward=False, check_allclose=False)
    def test_nothing_returned(test_case):
        x = random_tensor(2, 2, 3)
        y = x * x
        test_case.assertTrue(torch.autograd.grad(y.sum(), x)[0].numpy().shape == (2, 3))
""",
    "tolerances": """
    @autotest(n=2, rtol=1e-2)
    def test_rtol_alone(test_case):
        return random_tensor().exp()

    @autotest(n=2, atol=1e-3)
    def test_atol_alone(test_case):
        return random_tensor().exp()

    @autotest(n=2, rtol=1e-2, atol=1e-3, check_graph="ValidatedFalse")
    def test_both(test_case):
        return random_tensor().exp()
""",
    "returns": """
    @autotest(n=4)
    def test_number(test_case):
        return len(random_tensor(2))

    @autotest(n=4)
    def test_mixed(test_case):
        x = random_tensor(3)
        y = x.transpose(0, 1)
        return y, y.is_contiguous(), x.size(0), None

    @autotest(n=4)
    def test_flags(test_case):
        z = torch.nn.Parameter(torch.ones(2, 3))
        return z.grad_fn, z.is_leaf

    @autotest(n=4)
    def test_constant(test_case):
        return torch.iinfo(torch.int8).max
""",
    "sides": """import numpy as np
import torch as plain
import oneflow as flow
from oneflow.test_utils.automated_test_util import *


class TestIt(flow.unittest.TestCase):
    @autotest(n=4)
    def test_read(test_case):
        x = random_tensor(3)
        test_case.assertTrue(np.array_equal(x.oneflow.numpy(), x.pytorch.detach().cpu().numpy()))
        return torch.cumsum(x, random(0, x.ndim.pytorch).to(int))

    @autotest(n=4)
    def test_written(test_case):
        x = random_tensor(2).to(random_device())
        x.oneflow = x.oneflow.detach().requires_grad_()
        x.pytorch = x.pytorch.detach().requires_grad_()
        return plain.tanh(x.pytorch), flow.tanh(x.oneflow)

    @autotest(n=4)
    def test_items(test_case):
        x = random_tensor(1, 6, requires_grad=False)
        x.oneflow[1:3] = 0.5
        x.pytorch[1:3] = 0.5
        return [x[i] for i in range(x.__len__().pytorch)]

    @autotest(n=4, auto_backward=False)
    def test_identity(test_case):
        x = random_tensor(2)
        x.sum().backward()
        first, kept = id(x.grad), [x.grad for _ in range(3)]
        x.sum().backward()
        test_case.assertEqual(first, id(x.grad.oneflow))
        test_case.assertNotEqual(first, id(x.pytorch))
        return kept[0]

    @autotest(n=4)
    def test_namespace(test_case):
        m = torch.nn.Linear(3, 2)
        return torch.pytorch.relu(m.pytorch.weight)
""",
    "arrays": """import no_such_package.parts
import numpy as np
import oneflow as flow
from no_such_package import part
from pkg_resources import packaging
from oneflow.test_utils.automated_test_util import *
from random import shuffle


class TestIt(flow.unittest.TestCase):
    @autotest(n=4)
    def test_tensor(test_case):
        x = torch.tensor(np.random.randn(2, 3), device=random_device(), dtype=torch.float32)
        return x * random_tensor(2, 2, 3)

    @autotest(n=2, auto_backward=packaging.version.parse("2.0") > packaging.version.parse("1.13"))
    def test_absent_package(test_case):
        return part(random_tensor(2))

    @autotest(n=2)
    def test_absent_number(test_case):
        return random_tensor(2) * no_such_package.parts.number

    @autotest(n=4)
    def test_shuffle(test_case):
        order = [0, 1, 2]
        shuffle(order)
        return random_tensor(3, 2, np.random.randint(1, 4), 2).permute(order)
""",
    "old_names": """import unittest

import oneflow as flow
from automated_test_util import *
from test_util import GenArgList


class TestIt(flow.unittest.TestCase):
    @autotest(check_graph="ValidatedFlase")
    def test_it(test_case):
        return random_pytorch_tensor(2, pin_memory=False).sigmoid()

    @autotest(n=2)
    def test_value_of_a_tensor(test_case):
        shape = random_tensor().value().shape
        return random_pytorch_tensor(len(shape), *shape).sin()
""",
    "flow_names": """
    @autotest(n=4)
    def test_functions(test_case):
        x = random_tensor(2, 3, 3).to(flow.device("cpu"))
        return flow.nn.functional.softmax(flow.exp(x), dim=1), flow.nn.ReLU()(x)

    @autotest(n=4)
    def test_one_process(test_case):
        test_case.assertEqual((flow.env.get_rank(), flow.env.get_world_size()), (0, 1))
        return flow._C.relu(random_tensor(2))
""",
    "missing": """
    class Graph(flow.nn.Graph):
        def build(self, x):
            return x

    @autotest(n=2)
    def test_function(test_case):
        return flow._C.fused_mlp(random_tensor(2))

    @autotest(n=2)
    def test_class(test_case):
        return TestIt.Graph()(random_tensor(2))

    @autotest(n=2)
    def test_attribute(test_case):
        return random_tensor(2).no_such_method()

    @autotest(n=2)
    def test_other(test_case):
        x = random_tensor(2) + 1
        return flow.no_such_function(x) if hasattr(flow, "no_such_function") else x
""",
    "ranks": """import oneflow as flow
from oneflow.test_utils.automated_test_util import *


@autotest(n=1, check_graph=True)
def _sum(test_case, placement, sbp, other=flow.sbp.split(-1)):
    x = random_tensor(ndim=2, dim0=4, dim1=4).to_global(placement=placement, sbp=sbp)
    y = random_tensor(2, 4, 4).to(cpu_device()).to_global(placement, [other])
    return (x + y).to_global(placement, flow.sbp.broadcast)


@autotest(n=1, auto_backward=False, rtol=1e-3)
def _only_placed(test_case, placement, sbp):
    return random_tensor(2).to_global(placement=placement, sbp=sbp)


@flow.unittest.skip_unless_1n2d()
class TestIt(flow.unittest.TestCase):
    @globaltest
    def test_loops(test_case):
        for placement in all_placement():
            for sbp in all_sbp(placement, max_dim=2):
                _sum(test_case, placement, sbp)

    @globaltest
    @autotest(n=2)
    def test_generators(test_case):
        placement = random_placement()
        x = random_tensor(3, 4, 4, 4).to_global(placement, random_sbp(placement, max_dim=3, except_partial_sum=True))
        test_case.assertEqual((len(placement.value().ranks.shape), placement.type), (1, "cpu"))
        return x.sin()

    @globaltest
    @flow.unittest.skip_unless_1n4d()
    def test_below(test_case):
        for sbp in all_sbp(random_placement(), max_dim=2, valid_split_axis=1):
            _sum(test_case, flow.placement.all("cpu"), sbp)

    @globaltest
    def test_only_placed(test_case):
        for sbp in all_sbp(max_dim=2):
            _only_placed(test_case, flow.placement("cpu", ranks=[0, 1]), sbp)

    @autotest(n=2)
    def test_not_global(test_case):
        return random_tensor().sin()


class TestOneProcess(flow.unittest.TestCase):
    @autotest(n=2)
    def test_creation(test_case):
        return torch.ones(2, placement=random_placement(), sbp=random_sbp())

    @autotest(n=2)
    def test_attribute(test_case):
        return random_tensor(2).to_global(flow.placement.all("cpu"), flow.sbp.broadcast).sin().sbp

    @autotest(n=2)
    def test_local(test_case):
        return random_tensor(2).to_local()

    @autotest(n=2)
    def test_module(test_case):
        return torch.nn.Linear(2, 2).to_global(flow.placement.all("cpu"), flow.sbp.split(0))(random_tensor(2, 2, 2))
""",
    "devices": """
    @autotest(n=2)
    def test_name_of_a_gpu(test_case):
        device, other = "cuda:0", flow.device("cuda")
        return random_tensor().to(device) + torch.ones(1, device=other)

    @flow.unittest.skip_unless_1n2d()
    @autotest(n=2)
    def test_two_devices(test_case):
        return random_tensor().sin()


@flow.unittest.skip_unless_2n4d()
class TestMany(flow.unittest.TestCase):
    @autotest(n=2)
    def test_eight_devices(test_case):
        return random_tensor().sin()
""",
    "skips": """
    @unittest.skip("above")
    @autotest(n=2)
    def test_above(test_case):
        return 1 / 0

    @autotest(n=2)
    @unittest.skipIf(True, "below")
    def test_below(test_case):
        return 1 / 0

    @unittest.skipIf(os.getenv("ONEFLOW_TEST_CPU_ONLY"), "only test cpu cases")
    @autotest(n=2)
    def test_not(test_case):
        return random_tensor().sin()

    @autotest(n=2)
    def test_raised(test_case):
        raise unittest.SkipTest("raised")

    @autotest(n=2)
    def test_called(self):
        self.skipTest("called")
""",
    "tables": """from collections import OrderedDict

import numpy as np
import oneflow as flow
from oneflow.test_utils.automated_test_util import *
from oneflow.test_utils.test_util import GenArgDict, GenArgList


def _compare(test_case, shape):
    test_case.assertEqual(flow.ones(shape).numpy().shape, np.ones(shape).shape)


class TestIt(flow.unittest.TestCase):
    def test_table(test_case):
        table = OrderedDict()
        table["function"] = [_compare]
        table["shape"] = [(2, 3), (4,)]
        for row in GenArgList(table):
            row[0](test_case, *row[1:])

    @autotest(n=2)
    def test_it(test_case):
        rows = list(GenArgDict(OrderedDict(a=[1, 2], device=["cpu", "cuda"])))
        test_case.assertEqual(len(rows), 4 if flow.cuda.is_available() else 2)
        return random_tensor().to(rows[0]["device"]) * rows[0]["a"]
""",
    "profiled": """
    @profile(torch.nn.functional.relu)
    def profile_relu(test_case):
        torch.nn.functional.relu(torch.ones(4, 4))

    @autotest(n=2)
    def test_it(test_case):
        return torch.nn.functional.relu(random_tensor())
""",
    "helpers": """
    @autotest(n=4)
    def test_two(test_case):
        return _softmax(2)

    @autotest(n=4)
    def test_inner(test_case):
        return _declared(test_case, 3)


def _softmax(ndim):
    return torch.nn.Softmax(dim=random(0, ndim).to(int) | nothing())(random_tensor(ndim))


@autotest(n=9)
def _declared(test_case, ndim):
    return random_tensor(ndim).logsumexp(0)
""",
    "twice": """
    @autotest(n=2)
    def test_it(test_case):
        return random_tensor().sin()

    @autotest(n=2)
    def test_it(test_case):
        return random_tensor().cos()

    @autotest(n=2)
    def test_other(test_case):
        return random_tensor().tan()
""",
    "classes_twice": """
    @autotest(n=2)
    def test_first(test_case):
        return random_tensor().sin()


class TestIt(flow.unittest.TestCase):
    @autotest(n=2)
    def test_second(test_case):
        return random_tensor().cos()
""",
    "faults": """
    @autotest(n=2)
    def test_own_error(test_case):
        return random_tensor() + [][1]

    @autotest(n=2)
    def test_nothing_compared(test_case):
        random_tensor()
""",
    "set_up": """
    def setUp(self):
        self.factor = 3

    @autotest(n=2)
    def test_it(self):
        return random_tensor() * self.factor


if __name__ == "__main__":
    unittest.main()
""",
    "state": """
    @autotest(n=4)
    def test_batch_norm(test_case):
        channels = random(2, 5).to(int)
        m = torch.nn.BatchNorm1d(channels, track_running_stats=random_bool() | nothing())
        m.train(random())
        return m(random_tensor(2, random(3, 5), channels))

    @autotest(n=2)
    def test_data(test_case):
        x = torch.nn.Parameter(torch.ones(2, 3))
        x.data.mul_(2)
        return x
""",
    "functions": """import oneflow as flow
from oneflow.test_utils.automated_test_util import *


@autotest(n=2)
def test_function(test_case):
    return random_tensor(2, 3, 3).matmul(random_tensor(2, 3, 3))
""",
}
#: Outcome of each test that is not aligned.
OTHERS = {
    "arrays": dict.fromkeys(("TestIt.test_absent_package", "TestIt.test_absent_number"), "unsupported"),
    "missing": dict.fromkeys(("TestIt.test_function", "TestIt.test_class", "TestIt.test_attribute"), "unsupported"),
    "ranks": {
        "TestIt.test_only_placed": "unsupported",
        "TestIt.test_not_global": "skipped",
        "TestOneProcess.test_creation": "unsupported",
        "TestOneProcess.test_attribute": "unsupported",
        "TestOneProcess.test_local": "unsupported",
    },
    "devices": {"TestIt.test_two_devices": "skipped", "TestMany.test_eight_devices": "skipped"},
    "skips": dict.fromkeys(
        ("TestIt.test_above", "TestIt.test_below", "TestIt.test_raised", "TestIt.test_called"), "skipped"
    ),
}
#: What is wrong with tests that are broken, by file and test; "{file}" stands for the file.
BROKEN = {
    ("returns", "TestIt.test_constant"): "the body returns int 127, which no recorded step gave",
    ("twice", "TestIt.test_it (line 12)"): "{file} defines TestIt.test_it in line 12 and again in line 16",
    ("classes_twice", "TestIt (line 9)"): "{file} defines TestIt in line 9 and again in line 16: the test of the first",
    ("faults", "TestIt.test_own_error"): "the body raised IndexError: list index out of range ({file}, line 13)",
    (
        "faults",
        "TestIt.test_nothing_compared",
    ): "the body calls no operator of torch: there is nothing to compare. ({file}",
}


def text_of(name: str) -> str:
    """Return the text of a file."""
    body = FILES[name]
    return body if body.startswith(("import", "from")) else HEAD + body
