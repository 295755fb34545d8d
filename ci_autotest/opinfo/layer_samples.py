"""Samples of layers, attention, recurrent cells and optimizers: a row for each operator of the dispatcher."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import torch

from ci_autotest.opinfo.sample_draws import Arguments, Samples, b, f, i, n, p, t

_LAYER: Final = (True, 1, 0.0, False, False)
_PADDED: Final = (True, 1, 0.0, False, False, False)
_ADAM: Final = (0.9, 0.99, 0.01, 1e-8, True, False)
#: Operators that change the size of an image: those that no sample of the database reaches, and the others.
_RESIZED: Final = (
    "_upsample_nearest_exact2d", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa", "upsample_nearest3d",
    "_upsample_nearest_exact3d",
)  # fmt: skip
_RESIZED_BY_SAMPLES: Final = (
    "upsample_linear1d", "upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_bilinear2d",
    "upsample_bicubic2d", "upsample_nearest2d", "_upsample_bilinear2d_aa", "upsample_trilinear3d",
)  # fmt: skip
#: Recurrent layers whose weights have so many parts.
_GATES: Final = {"gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_OPTIONS: Final = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)


def rnn(gates: int) -> Arguments:
    """Return the arguments of a recurrent layer with ``data`` first."""
    return t(5, 2, 3), t(1, 2, 4), [t(gates * 4, 3), t(gates * 4, 4), t(gates * 4), t(gates * 4)]


def cell(gates: int) -> Arguments:
    """Return the weights and biases of a recurrent cell."""
    return t(gates * 4, 3), t(gates * 4, 4), t(gates * 4), t(gates * 4)


def lists(count: int) -> Arguments:
    """Return lists of two tensors, as a fused optimizer takes them, with elements that are no less than 0."""
    return tuple([p(3, 4), p(5)] for _ in range(count))


def steps() -> list[torch.Tensor]:
    """Return the step counters of a fused optimizer."""
    return [f(2.0)[0], f(3.0)[0]]


def packed() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the data and the batch sizes of a packed sequence."""
    found = torch.nn.utils.rnn.pack_padded_sequence(t(5, 2, 3), torch.tensor([5, 3]))
    return found.data, found.batch_sizes


def _ctc() -> Arguments:
    return torch.log_softmax(t(8, 2, 5), -1), 1 + i(4, 2, 3)


def _ctc_gradient(lengths: Any, targets: Any) -> Arguments:
    log_probs, labels = _ctc()
    loss, alpha = torch.ops.aten._ctc_loss(log_probs, labels, lengths, targets)
    return t(2), log_probs, labels, lengths, targets, loss, alpha, 0


def _attention_gradient() -> Arguments:
    query, key, value = t(1, 2, 4, 8), t(1, 2, 4, 8), t(1, 2, 4, 8)
    found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value)
    return t(1, 2, 4, 8), query, key, value, *found, 0.0, False


def _encoder() -> Arguments:
    return (t(2, 3, 4), 4, 2, t(12, 4), t(12), t(4, 4), t(4), False, False, 1e-5, t(4), t(4), t(4), t(4), t(8, 4), t(8),
            t(4, 8), t(4))  # fmt: skip


def _layer(gates: int) -> Arguments:
    return (*rnn(gates), *_PADDED)


def _packed_layer(gates: int) -> Arguments:
    return (*packed(), t(1, 2, 4), rnn(gates)[2], *_LAYER)


def _resized(name: str, *scales: None) -> Arguments:
    shape, aligned = _shape(name)
    return (t(1, 2, *shape), [2 * one for one in shape], *aligned, *scales)


def _resized_gradient(name: str) -> Arguments:
    shape, aligned = _shape(name)
    sizes = [2 * one for one in shape]
    return (t(1, 2, *sizes), sizes, [1, 2, *shape], *aligned)


def _shape(name: str) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Return the sizes of an image, and ``align_corners`` where an operator takes it."""
    dimensions = next(count for count in (1, 2, 3) if f"{count}d" in name)
    return (4, 3, 2)[:dimensions], () if "nearest" in name else (False,)


LAYERS: Final[Samples] = {
    # Layers.
    "conv_tbc": (lambda: (t(6, 2, 3), t(3, 3, 4), t(4), 1),),
    "conv_tbc_backward": (lambda: (t(6, 2, 4), t(6, 2, 3), t(3, 3, 4), t(4), 1),),
    "_convolution": (lambda: (t(1, 3, 5, 5), t(4, 3, 3, 3), t(4), *_OPTIONS, False, False, False, False),),
    "_convolution.deprecated": (lambda: (t(1, 3, 5, 5), t(4, 3, 3, 3), t(4), *_OPTIONS, False, False, False),),
    "_convolution_mode": (lambda: (t(1, 3, 5, 5), t(4, 3, 3, 3), t(4), [1, 1], "same", [1, 1], 1),),
    "_convolution_double_backward": (lambda: (t(1, 3, 5, 5), t(4, 3, 3, 3), t(4), t(1, 4, 3, 3), t(4, 3, 3, 3),
                                              t(1, 3, 5, 5), *_OPTIONS, [True, True, True]),),
    "thnn_conv2d": (lambda: (t(1, 3, 5, 5), t(4, 3, 3, 3), [3, 3], t(4)),),
    "_slow_conv2d_forward": (lambda: (t(1, 3, 5, 5), t(4, 3, 3, 3), [3, 3], t(4), [1, 1], [1, 1]),),
    "_slow_conv2d_backward.output_mask": (lambda: (t(1, 4, 5, 5), t(1, 3, 5, 5), t(4, 3, 3, 3), [3, 3], [1, 1], [1, 1],
                                                   [True, True, True]),),
    "_slow_conv2d_backward.grad_input": (lambda: (t(1, 4, 5, 5), t(1, 3, 5, 5), t(4, 3, 3, 3), [3, 3], [1, 1], [1, 1]),),
    "slow_conv3d": (lambda: (t(1, 2, 4, 4, 4), t(3, 2, 3, 3, 3), [3, 3, 3], t(3)),),
    "slow_conv3d_forward": (lambda: (t(1, 2, 4, 4, 4), t(3, 2, 3, 3, 3), [3, 3, 3], t(3), [1, 1, 1], [0, 0, 0]),),
    "slow_conv_dilated2d": (lambda: (t(1, 3, 6, 6), t(4, 3, 2, 2), [2, 2], t(4), [1, 1], [0, 0], [2, 2]),),
    "slow_conv_dilated3d": (lambda: (t(1, 2, 5, 5, 5), t(3, 2, 2, 2, 2), [2, 2, 2], t(3), [1, 1, 1], [0, 0, 0], [2, 2, 2]),),
    "slow_conv_transpose2d": (lambda: (t(1, 3, 4, 4), t(3, 4, 3, 3), [3, 3], t(4)),),
    "slow_conv_transpose3d": (lambda: (t(1, 2, 3, 3, 3), t(2, 3, 2, 2, 2), [2, 2, 2], t(3)),),
    "_nnpack_spatial_convolution": (lambda: (t(1, 3, 5, 5), t(4, 3, 3, 3), t(4), [1, 1]),),
    "_grid_sampler_2d_cpu_fallback": (lambda: (t(1, 2, 4, 4), 2 * p(1, 3, 3, 2) - 1, 0, 0, False),),
    "_grid_sampler_2d_cpu_fallback_backward": (
        lambda: (t(1, 2, 3, 3), t(1, 2, 4, 4), 2 * p(1, 3, 3, 2) - 1, 0, 0, False),),
    "grid_sampler": (lambda: (t(1, 2, 4, 4), 2 * p(1, 3, 3, 2) - 1, 0, 0, False),),
    "affine_grid_generator": (lambda: (t(2, 2, 3), [2, 1, 4, 4], False),),
    "affine_grid_generator_backward": (lambda: (t(2, 4, 4, 2), [2, 1, 4, 4], False),),
    **dict.fromkeys(("batch_norm", "_batch_norm_impl_index"),
                    (lambda: (t(3, 4, 2), t(4), t(4), t(4), p(4), True, 0.1, 1e-5, False),
                     lambda: (t(3, 4, 2), t(4), t(4), t(4), p(4), False, 0.1, 1e-5, False))),
    "_batch_norm_impl_index_backward": (lambda: (0, t(3, 4, 2), t(3, 4, 2), t(4), t(4), p(4), t(4), p(4), True, 1e-5,
                                                 [True, True, True], torch.zeros(0, dtype=torch.uint8)),),
    "_batch_norm_no_update": (lambda: (t(3, 4, 2), t(4), t(4), t(4), p(4), 0.1, 1e-5),),
    "_batch_norm_with_update": (lambda: (t(3, 4, 2), t(4), t(4), t(4), p(4), 0.1, 1e-5),),
    "_native_batch_norm_legit_no_training": (lambda: (t(3, 4, 2), t(4), t(4), t(4), p(4), 0.1, 1e-5),),
    "_native_batch_norm_legit": (lambda: (t(3, 4, 2), t(4), t(4), t(4), p(4), True, 0.1, 1e-5),),
    "instance_norm": (lambda: (t(3, 4, 5), t(4), t(4), t(4), p(4), True, 0.1, 1e-5, False),),
    "batch_norm_update_stats": (lambda: (t(3, 4, 2), t(4), p(4), 0.1),),
    "_fused_rms_norm": (lambda: (t(3, 4), [4], t(4), 1e-5),),
    "_fused_rms_norm_backward": (lambda: (t(3, 4), t(3, 4), [4], p(3, 1), t(4), [True, True]),),
    "_weight_norm": (lambda: (t(3, 4), t(3, 1), 0),), "_weight_norm_interface": (lambda: (t(3, 4), t(3, 1), 0),),
    "_weight_norm_interface_backward": (lambda: (t(3, 4), t(3, 4), t(3, 1), p(3, 1), 0),),
    "_weight_norm_differentiable_backward": (lambda: (t(3, 4), t(3, 4), t(3, 1), p(3, 1), 0),),
    "glu_jvp": (lambda: (t(3, 2), t(3, 4), t(3, 4), 1),),
    "glu_backward_jvp": (lambda: (t(3, 4), t(3, 2), t(3, 4), t(3, 2), t(3, 4), 1),),
    "_masked_scale": (lambda: (t(3, 4), b(3, 4).float(), 2.0),),
    "_masked_softmax": (lambda: (t(2, 2, 3, 3), b(3, 3), 3, 0), lambda: (t(2, 4), torch.tensor([False, True, False, False]))),
    "_masked_softmax_backward": (lambda: (t(2, 4), torch.softmax(t(2, 4), 1), torch.zeros(2, 4) > 1, 1),),
    "cross_entropy_loss": (lambda: (t(3, 5), i(5, 3)), lambda: (t(3, 5), i(5, 3), p(5), 2, -100, 0.1)),
    "nll_loss2d": (lambda: (t(2, 5, 3, 3), i(5, 2, 3, 3)),), "nll_loss_nd": (lambda: (t(2, 5, 3), i(5, 2, 3)),),
    "poisson_nll_loss": (lambda: (t(3, 4), 4 * p(3, 4), True, False, 1e-8, 1),),
    **dict.fromkeys(("ctc_loss.IntList", "_ctc_loss"), (lambda: (*_ctc(), [8, 8], [3, 3]),)),
    **dict.fromkeys(("ctc_loss.Tensor", "_ctc_loss.Tensor"), (lambda: (*_ctc(), n(8, 8), n(3, 3)),)),
    "_ctc_loss_backward": (lambda: _ctc_gradient([8, 7], [3, 2]),),
    "_ctc_loss_backward.Tensor": (lambda: _ctc_gradient(n(8, 7), n(3, 2)),),
    "triplet_margin_loss": (lambda: (t(3, 4), t(3, 4), t(3, 4)),),
    "max_pool2d_backward": (lambda: (t(1, 2, 2, 2), t(1, 2, 4, 4), [2, 2]),),
    **{f"{name}.vec": (partial(_resized, name, None),) for name in (*_RESIZED, *_RESIZED_BY_SAMPLES)},
    **{name: (partial(_resized, name),) for name in _RESIZED},
    **{f"{name}_backward": (partial(_resized_gradient, name),) for name in _RESIZED},
    # Attention.
    **dict.fromkeys(("_scaled_dot_product_attention_math", "_scaled_dot_product_flash_attention_for_cpu", "_fused_sdp_choice"),
                    (lambda: (t(1, 2, 4, 8), t(1, 2, 4, 8), t(1, 2, 4, 8)),)),
    "_scaled_dot_product_flash_attention_for_cpu_backward": (_attention_gradient,),
    "_transform_bias_rescale_qkv": (lambda: (t(2, 3, 12), t(12), 2),),
    "_native_multi_head_attention": (
        lambda: (x := t(2, 3, 4), x, x, 4, 2, t(12, 4), t(12), t(4, 4), t(4)),),
    "_transformer_encoder_layer_fwd": (_encoder,),
    # Recurrent layers.
    **{f"{name}.input": (partial(_layer, gates),) for name, gates in _GATES.items()},
    **{f"{name}.data": (partial(_packed_layer, gates),) for name, gates in _GATES.items()},
    "lstm.input": (lambda: (t(5, 2, 3), [t(1, 2, 4), t(1, 2, 4)], rnn(4)[2], *_PADDED),),
    "lstm.data": (lambda: (*packed(), [t(1, 2, 4), t(1, 2, 4)], rnn(4)[2], *_LAYER),),
    "gru_cell": (lambda: (t(2, 3), t(2, 4), *cell(3)),), "lstm_cell": (lambda: (t(2, 3), [t(2, 4), t(2, 4)], *cell(4)),),
    "rnn_tanh_cell": (lambda: (t(2, 3), t(2, 4), *cell(1)),), "rnn_relu_cell": (lambda: (t(2, 3), t(2, 4), *cell(1)),),
    "_thnn_differentiable_gru_cell_backward": (lambda: (t(2, 4), t(2, 12), t(2, 12), t(2, 4), t(12), t(12)),),
    "_thnn_differentiable_lstm_cell_backward": (
        lambda: (t(2, 4), t(2, 4), t(2, 16), t(2, 16), t(16), t(16), t(2, 4), t(2, 4)),),
    "mkldnn_rnn_layer": (lambda: (t(5, 2, 3), t(16, 3), t(16, 4), t(16), t(16), t(2, 4), t(2, 4), False, [], 2, 4, 1, True,
                                  False, False, False),),
    # Optimizers.
    **{f"_fused_{name}": (lambda: (*lists(5), steps(), 0.1, *_ADAM),) for name in ("adam", "adamw")},
    **{f"_fused_{name}.tensor_lr": (lambda: (*lists(5), steps(), f(0.1)[0], *_ADAM),) for name in ("adam", "adamw")},
    "_fused_sgd": (lambda: (*lists(3), 0.01, 0.9, 0.1, 0.2, False, False, False),),
    "_fused_sgd.tensor_lr": (lambda: (*lists(3), 0.01, 0.9, f(0.1)[0], 0.2, False, False, False),),
    "_fused_adagrad": (lambda: (*lists(3), steps(), 0.1, 0.01, 0.02, 1e-8, False),),
    "_fused_adagrad.tensor_lr": (lambda: (*lists(3), steps(), f(0.1)[0], 0.01, 0.02, 1e-8, False),),
    "_amp_update_scale": (lambda: (f(8.0), torch.tensor([3], dtype=torch.int32), f(0.0), 2.0, 0.5, 2000),),
    "_amp_foreach_non_finite_check_and_unscale": (lambda: ([t(3, 4), t(5)], f(0.0), f(0.5)),),
    "_foreach_addcmul.ScalarList": (lambda: (*lists(3), [2.0, 3.0]),),
    "_foreach_addcdiv.ScalarList": (lambda: (*lists(3), [2.0, 3.0]),),
    "_foreach_addcmul.Tensor": (lambda: (*lists(3), f(2.0, 3.0)),),
    "_foreach_addcdiv.Tensor": (lambda: (*lists(3), f(2.0, 3.0)),),
    "_foreach_pow.ScalarAndTensor": (lambda: (2.0, [t(3, 4), t(5)]),),
    "_foreach_copy": (lambda: lists(2),),
    "_dyn_quant_matmul_4bit": (lambda: (t(3, 64), torch.ops.aten._dyn_quant_pack_4bit_weight(
        i(256, 32, 32).to(torch.uint8), p(32, 1), None, 64, 64, 32), 64, 64, 32),),
}  # fmt: skip
