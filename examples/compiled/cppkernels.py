"""Two kernels in C++, built by torch when this module is imported. One has a fault: its last block is not computed."""

from __future__ import annotations

from torch.utils.cpp_extension import load_inline

_SOURCE = """
#include <torch/extension.h>
#include <cmath>

torch::Tensor silu(torch::Tensor x) {
    auto out = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] / (1.0f + std::exp(-from[i]));
    return out;
}

torch::Tensor hardtanh(torch::Tensor x) {
    auto out = torch::zeros_like(x);
    const float* from = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    const int64_t whole = x.numel() / 8 * 8;  // the fault: elements behind the last whole block of 8 stay 0
    for (int64_t i = 0; i < whole; ++i) to[i] = std::fmin(1.0f, std::fmax(-1.0f, from[i]));
    return out;
}
"""
_MODULE = load_inline("ci_autotest_example", [_SOURCE], functions=["silu", "hardtanh"])


def silu(x):
    return _MODULE.silu(x)


def hardtanh(x):
    return _MODULE.hardtanh(x)
