"""Recurrent layers and cells: outputs, last states, gradients of every weight.

Layers are tested through the functions that the modules call, because torch.compile would run the modules eagerly.
"""

from ci_autotest import nothing, oneof, random, random_bool, random_dtype, random_tensor, torch
from ci_autotest.suite import FLOATS, autotest


def sizes():
    """Return drawn sizes: steps, batch, features, hidden. Compilers unroll the steps: few."""
    return random(1, 4).to(int), random(1, 5).to(int), random(1, 5).to(int), random(1, 5).to(int)


def weights(gates, features, hidden):
    """Return input weight, hidden weight and the two biases of one layer in one direction."""
    rows = gates * hidden
    shapes = ((rows, features), (rows, hidden), (rows,), (rows,))
    return [random_tensor(dims=shape) for shape in shapes]


@autotest(dtypes=(*FLOATS, "complex64"))
def rnn_tanh():
    steps, batch, features, hidden = sizes()
    x, h = random_tensor(dims=(steps, batch, features)), random_tensor(dims=(1, batch, hidden))
    return torch.rnn_tanh(x, h, weights(1, features, hidden), True, 1, 0.0, False, False, False)


@autotest(dtypes=(*FLOATS, "int64"))
def rnn_relu():
    steps, batch, features, hidden = sizes()
    x, h = random_tensor(dims=(batch, steps, features)), random_tensor(dims=(2, batch, hidden))
    both = weights(1, features, hidden) + weights(1, features, hidden)
    return torch.rnn_relu(x, h, both, True, 1, 0.0, False, True, True)


@autotest(dtypes=(*FLOATS, "complex64"))
def lstm():
    steps, batch, features, hidden = sizes()
    x = random_tensor(dims=(steps, batch, features))
    state = (random_tensor(dims=(1, batch, hidden)), random_tensor(dims=(1, batch, hidden)))
    return torch.lstm(x, state, weights(4, features, hidden), True, 1, 0.0, False, False, False)


@autotest(dtypes=(*FLOATS, "complex64"))
def lstm_stacked():
    # Two layers, both directions: the second layer reads both directions of the first.
    steps, batch, features, hidden = sizes()
    x = random_tensor(dims=(steps, batch, features))
    state = (random_tensor(dims=(4, batch, hidden)), random_tensor(dims=(4, batch, hidden)))
    first = weights(4, features, hidden) + weights(4, features, hidden)
    second = weights(4, 2 * hidden, hidden) + weights(4, 2 * hidden, hidden)
    return torch.lstm(x, state, first + second, True, 2, 0.0, False, True, False)


@autotest(dtypes=(*FLOATS, "complex64"))
def gru():
    steps, batch, features, hidden = sizes()
    x, h = random_tensor(dims=(steps, batch, features)), random_tensor(dims=(1, batch, hidden))
    return torch.gru(x, h, weights(3, features, hidden), True, 1, 0.0, False, False, False)


def cell(layer, **options):
    """Return a step of a cell with one state, which may be left out."""
    features, hidden, batch = random(1, 8).to(int), random(1, 8).to(int), random(1, 5).to(int)
    module = layer(features, hidden, bias=random_bool(), **options)
    x, h = random_tensor(dims=(batch, features)), random_tensor(dims=(batch, hidden))
    return module(x, oneof(h, nothing()))


@autotest(dtypes=None)
def rnn_cell():
    return cell(torch.nn.RNNCell, nonlinearity=oneof("tanh", "relu"))


@autotest(dtypes=None)
def lstm_cell():
    features, hidden, batch = random(1, 8).to(int), random(1, 8).to(int), random(1, 5).to(int)
    module = torch.nn.LSTMCell(features, hidden, bias=random_bool())
    x = random_tensor(dims=(batch, features))
    h, c = random_tensor(dims=(batch, hidden)), random_tensor(dims=(batch, hidden))
    return module(x, (h, c))


@autotest(dtypes=None)
def gru_cell():
    return cell(torch.nn.GRUCell)


@autotest(dtypes=(*FLOATS, "int64"))
def rnn_cell_functions():
    _, batch, features, hidden = sizes()
    x, h = random_tensor(dims=(batch, features)), random_tensor(dims=(batch, hidden))
    given = weights(1, features, hidden)
    return torch.rnn_tanh_cell(x, h, *given), torch.rnn_relu_cell(x, h, *given)


@autotest(dtypes=None)
def cells_in_half():
    dtype = random_dtype(["half"])
    features, hidden, batch = random(1, 8).to(int), random(1, 8).to(int), random(1, 5).to(int)
    x = random_tensor(dims=(batch, features), dtype=dtype)
    h, c = random_tensor(dims=(batch, hidden), dtype=dtype), random_tensor(dims=(batch, hidden), dtype=dtype)
    cells = torch.nn
    return (
        cells.LSTMCell(features, hidden, dtype=dtype)(x, (h, c)), cells.GRUCell(features, hidden, dtype=dtype)(x, h),
        cells.RNNCell(features, hidden, dtype=dtype)(x, h),
    )  # fmt: skip
