"""Recurrent layers and cells: each call constructs one of Paddle's and assigns PyTorch's weights to it.

Both frameworks lay out weights alike: rows of the input, forget, cell and output gate (LSTM), or of the reset, update
and new gate (GRU). Source: the documentation of ``torch.nn.LSTM``, ``paddle.nn.LSTM`` and the other layers.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import paddle

from ci_autotest.host.frameworks.protocol import LackingError

if TYPE_CHECKING:
    from collections.abc import Sequence


def lstm(
    input: Any, hx: Sequence[Any], params: Sequence[Any], has_biases: bool, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    """Return the outputs and the last hidden and cell states."""
    layer = _layer(paddle.nn.LSTM, params, has_biases, num_layers, train and dropout, bidirectional, batch_first)
    outputs, (hidden, cell) = layer(input, tuple(hx))
    return outputs, hidden, cell


def gru(
    input: Any, hx: Any, params: Sequence[Any], has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    """Return the outputs and the last hidden state."""
    return _layer(paddle.nn.GRU, params, has_biases, num_layers, train and dropout, bidirectional, batch_first)(
        input, hx
    )


def rnn(
    input: Any, hx: Any, params: Sequence[Any], has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool, *, activation: str,
) -> Any:  # fmt: skip
    """Return the outputs and the last hidden state."""
    make = functools.partial(paddle.nn.SimpleRNN, activation=activation)
    return _layer(make, params, has_biases, num_layers, train and dropout, bidirectional, batch_first)(input, hx)


def _layer(
    make: Any, params: Sequence[Any], has_biases: bool, num_layers: int, dropout: float, bidirectional: bool,
    batch_first: bool,
) -> Any:  # fmt: skip
    """Return a layer with the given weights. PyTorch lists them by layer, Paddle all matrices before all biases."""
    _refuse_graph()
    if not has_biases or dropout:
        message = "recurrent layer with given weights that has no biases, or has dropout"
        raise LackingError(message)
    # The first matrix multiplies the input, the second one the hidden state.
    rows, features = params[1].shape[1], params[0].shape[1]
    layer = make(
        features, rows, num_layers, direction="bidirect" if bidirectional else "forward", time_major=not batch_first
    )
    matrices = [weight for weight in params if weight.ndim > 1]
    # The list that the layer passes to its kernel. There is no public way to construct a layer from given weights.
    layer._all_weights = matrices + [weight for weight in params if weight.ndim == 1]
    return layer


def lstm_cell(input: Any, hx: Sequence[Any], w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """Return the next hidden and cell states."""
    return _cell(paddle.nn.LSTMCell, (w_ih, w_hh, b_ih, b_hh))(input, tuple(hx))[1]


def gru_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """Return the next hidden state."""
    return _cell(paddle.nn.GRUCell, (w_ih, w_hh, b_ih, b_hh))(input, hx)[0]


def rnn_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, *, activation: str) -> Any:
    """Return the next hidden state."""
    make = functools.partial(paddle.nn.SimpleRNNCell, activation=activation)
    return _cell(make, (w_ih, w_hh, b_ih, b_hh))(input, hx)[0]


def _refuse_graph() -> None:
    """Refuse to construct a layer while a graph is compiled, which finds buffers of existing layers only.

    Raises:
        LackingError: Paddle is compiling a graph.
    """
    if not paddle.in_dynamic_mode():
        message = "graph of a recurrent layer with given weights"
        raise LackingError(message)


def _cell(make: Any, weights: Sequence[Any]) -> Any:
    """Return a cell with the given weights; the last two are ``None`` if it has no biases."""
    _refuse_graph()
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    absent = {f"{name}_attr": False for name, weight in zip(names, weights, strict=True) if weight is None}
    cell = make(weights[0].shape[1], weights[1].shape[1], **absent)
    for name, weight in zip(names, weights, strict=True):
        if weight is not None:
            delattr(cell, name)  # a parameter can be replaced by another tensor only after it is deleted
            setattr(cell, name, weight)
    return cell
