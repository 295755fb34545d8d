"""Recurrent layers and cells: outputs, last states, gradients of every weight."""

from ci_autotest import autotest, nothing, oneof, random, random_bool, random_tensor, torch


@autotest()
def rnn():
    features, hidden = random(1, 5).to(int), random(1, 5).to(int)
    module = torch.nn.RNN(
        features,
        hidden,
        num_layers=random(1, 3).to(int),
        nonlinearity=oneof("tanh", "relu"),
        bias=random_bool(),
        batch_first=random_bool(),
        bidirectional=random_bool(),
    )
    x = random_tensor(ndim=3, dim2=features)
    return module(x)


@autotest()
def lstm():
    features, hidden = random(1, 5).to(int), random(1, 5).to(int)
    module = torch.nn.LSTM(
        features, hidden, num_layers=random(1, 3).to(int), bias=random_bool(), bidirectional=random_bool()
    )
    x = random_tensor(ndim=3, dim2=features)
    y, (h, c) = module(x)
    return y, h, c


@autotest()
def gru():
    features, hidden = random(1, 5).to(int), random(1, 5).to(int)
    module = torch.nn.GRU(features, hidden, bias=random_bool(), batch_first=random_bool(), bidirectional=random_bool())
    x = random_tensor(ndim=3, dim2=features)
    return module(x)


@autotest()
def rnn_cell():
    features, hidden, batch = random(1, 8).to(int), random(1, 8).to(int), random(1, 5).to(int)
    module = torch.nn.RNNCell(features, hidden, bias=random_bool(), nonlinearity=oneof("tanh", "relu"))
    x, h = random_tensor(dims=(batch, features)), random_tensor(dims=(batch, hidden))
    return module(x, oneof(h, nothing()))


@autotest()
def lstm_cell():
    features, hidden, batch = random(1, 8).to(int), random(1, 8).to(int), random(1, 5).to(int)
    module = torch.nn.LSTMCell(features, hidden, bias=random_bool())
    x = random_tensor(dims=(batch, features))
    h, c = random_tensor(dims=(batch, hidden)), random_tensor(dims=(batch, hidden))
    return module(x, (h, c))


@autotest()
def gru_cell():
    features, hidden, batch = random(1, 8).to(int), random(1, 8).to(int), random(1, 5).to(int)
    module = torch.nn.GRUCell(features, hidden, bias=random_bool())
    x, h = random_tensor(dims=(batch, features)), random_tensor(dims=(batch, hidden))
    return module(x, oneof(h, nothing()))
