"""Samples of overloads that no entry of PyTorch's databases reaches, written by hand.

A name is that of an operator of the dispatcher, with that of an overload if its arguments are others; its in-place and
``out=`` forms and its aliases take the same ones. The schemas are those of PyTorch 2.13.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import torch

from ci_autotest.opinfo.sample_draws import Arguments, Samples, b, coo, csr, dnn, f, i, n, p, q, qc, t

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
_QUANT: Final = (0.05, 3, 0, 255)


def _rnn(gates: int) -> Arguments:
    """Return the arguments of a recurrent layer with ``data`` first."""
    return t(5, 2, 3), t(1, 2, 4), [t(gates * 4, 3), t(gates * 4, 4), t(gates * 4), t(gates * 4)]


def _cell(gates: int) -> Arguments:
    """Return the weights and biases of a recurrent cell."""
    return t(gates * 4, 3), t(gates * 4, 4), t(gates * 4), t(gates * 4)


def _lists(count: int) -> Arguments:
    """Return lists of two tensors, as a fused optimizer takes them, with elements that are no less than 0."""
    return tuple([p(3, 4), p(5)] for _ in range(count))


def _steps() -> list[torch.Tensor]:
    """Return the step counters of a fused optimizer."""
    return [f(2.0)[0], f(3.0)[0]]


def _packed() -> tuple[torch.Tensor, torch.Tensor]:
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
    return (*_rnn(gates), *_PADDED)


def _packed_layer(gates: int) -> Arguments:
    return (*_packed(), t(1, 2, 4), _rnn(gates)[2], *_LAYER)


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


_LAYERS: Final[Samples] = {
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
    "lstm.input": (lambda: (t(5, 2, 3), [t(1, 2, 4), t(1, 2, 4)], _rnn(4)[2], *_PADDED),),
    "lstm.data": (lambda: (*_packed(), [t(1, 2, 4), t(1, 2, 4)], _rnn(4)[2], *_LAYER),),
    "gru_cell": (lambda: (t(2, 3), t(2, 4), *_cell(3)),), "lstm_cell": (lambda: (t(2, 3), [t(2, 4), t(2, 4)], *_cell(4)),),
    "rnn_tanh_cell": (lambda: (t(2, 3), t(2, 4), *_cell(1)),), "rnn_relu_cell": (lambda: (t(2, 3), t(2, 4), *_cell(1)),),
    "_thnn_differentiable_gru_cell_backward": (lambda: (t(2, 4), t(2, 12), t(2, 12), t(2, 4), t(12), t(12)),),
    "_thnn_differentiable_lstm_cell_backward": (
        lambda: (t(2, 4), t(2, 4), t(2, 16), t(2, 16), t(16), t(16), t(2, 4), t(2, 4)),),
    "mkldnn_rnn_layer": (lambda: (t(5, 2, 3), t(16, 3), t(16, 4), t(16), t(16), t(2, 4), t(2, 4), False, [], 2, 4, 1, True,
                                  False, False, False),),
    # Optimizers.
    **{f"_fused_{name}": (lambda: (*_lists(5), _steps(), 0.1, *_ADAM),) for name in ("adam", "adamw")},
    **{f"_fused_{name}.tensor_lr": (lambda: (*_lists(5), _steps(), f(0.1)[0], *_ADAM),) for name in ("adam", "adamw")},
    "_fused_sgd": (lambda: (*_lists(3), 0.01, 0.9, 0.1, 0.2, False, False, False),),
    "_fused_sgd.tensor_lr": (lambda: (*_lists(3), 0.01, 0.9, f(0.1)[0], 0.2, False, False, False),),
    "_fused_adagrad": (lambda: (*_lists(3), _steps(), 0.1, 0.01, 0.02, 1e-8, False),),
    "_fused_adagrad.tensor_lr": (lambda: (*_lists(3), _steps(), f(0.1)[0], 0.01, 0.02, 1e-8, False),),
    "_amp_update_scale": (lambda: (f(8.0), torch.tensor([3], dtype=torch.int32), f(0.0), 2.0, 0.5, 2000),),
    "_amp_foreach_non_finite_check_and_unscale": (lambda: ([t(3, 4), t(5)], f(0.0), f(0.5)),),
    "_foreach_addcmul.ScalarList": (lambda: (*_lists(3), [2.0, 3.0]),),
    "_foreach_addcdiv.ScalarList": (lambda: (*_lists(3), [2.0, 3.0]),),
    "_foreach_addcmul.Tensor": (lambda: (*_lists(3), f(2.0, 3.0)),),
    "_foreach_addcdiv.Tensor": (lambda: (*_lists(3), f(2.0, 3.0)),),
    "_foreach_pow.ScalarAndTensor": (lambda: (2.0, [t(3, 4), t(5)]),),
    "_foreach_copy": (lambda: _lists(2),),
    "_dyn_quant_matmul_4bit": (lambda: (t(3, 64), torch.ops.aten._dyn_quant_pack_4bit_weight(
        i(256, 32, 32).to(torch.uint8), p(32, 1), None, 64, 64, 32), 64, 64, 32),),
}  # fmt: skip


# Samples of what a tensor can be stored as: quantized, sparse, and in oneDNN's layout.


def _observer() -> Arguments:
    return t(4, 3), n(1), n(1), f(-1.0), f(1.0), f(0.1), torch.zeros(1, dtype=torch.int32), 0.01, 0, 255, 0


_STORAGES: Final[Samples] = {
    # Quantization of plain tensors.
    "fake_quantize_per_tensor_affine": (lambda: (t(3, 4), *_QUANT),),
    "fake_quantize_per_tensor_affine.tensor_qparams": (
        lambda: (t(3, 4), f(0.05), torch.tensor([3], dtype=torch.int32), 0, 255),),
    "fake_quantize_per_tensor_affine_cachemask": (lambda: (t(3, 4), *_QUANT),),
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": (
        lambda: (t(3, 4), f(0.05), torch.tensor([3], dtype=torch.int32), n(1), 0, 255),),
    "_fake_quantize_learnable_per_tensor_affine": (lambda: (t(3, 4), f(0.05), f(3.0), 0, 255),),
    "_fake_quantize_learnable_per_tensor_affine_backward": (lambda: (t(3, 4), t(3, 4), f(0.05), f(3.0), 0, 255),),
    **dict.fromkeys(("fake_quantize_per_channel_affine", "fake_quantize_per_channel_affine_cachemask"),
                    (lambda: (t(3, 4), 0.1 * p(3), torch.zeros(3, dtype=torch.int32), 0, 0, 255),)),
    "_fake_quantize_learnable_per_channel_affine": (lambda: (t(3, 4), 0.1 * p(3), torch.zeros(3), 0, 0, 255),),
    "_fake_quantize_learnable_per_channel_affine_backward": (
        lambda: (t(3, 4), t(3, 4), 0.1 * p(3), torch.zeros(3), 0, 0, 255),),
    **dict.fromkeys(("fake_quantize_per_tensor_affine_cachemask_backward",
                     "fake_quantize_per_channel_affine_cachemask_backward"), (lambda: (t(3, 4), b(3, 4)),)),
    **dict.fromkeys(("fused_moving_avg_obs_fake_quant", "_fused_moving_avg_obs_fq_helper",
                     "_fused_moving_avg_obs_fq_helper_functional"), (_observer,)),
    "quantize_per_tensor": (lambda: (t(3, 4), 0.05, 100, torch.quint8),),
    "quantize_per_tensor.tensor_qparams": (lambda: (t(3, 4), f(0.05)[0], n(100)[0], torch.quint8),),
    "quantize_per_tensor.tensors": (lambda: ([t(3, 4), t(5)], f(0.05, 0.1), n(100, 90), torch.quint8),),
    "quantize_per_tensor_dynamic": (lambda: (t(3, 4), torch.quint8, False),),
    "quantize_per_channel": (lambda: (t(3, 4), 0.1 * p(3), n(0, 1, 2), 0, torch.qint8),),
    "_make_per_tensor_quantized_tensor": (lambda: (i(99, 3, 4).to(torch.uint8), 0.05, 10),),
    "_make_per_channel_quantized_tensor": (lambda: (i(99, 3, 4).to(torch.uint8), 0.1 * p(3), n(0, 1, 2), 0),),
    **dict.fromkeys(("dequantize.self", "int_repr", "q_scale", "q_zero_point", "qscheme"), (lambda: (q(3, 4),),)),
    "dequantize.tensors": (lambda: ([q(3, 4), q(5)],),),
    **dict.fromkeys(("q_per_channel_scales", "q_per_channel_zero_points", "q_per_channel_axis"), (lambda: (qc(3, 4),),)),
    "quantized_max_pool1d": (lambda: (q(1, 2, 6), [2]),), "quantized_max_pool2d": (lambda: (q(1, 2, 6, 6), [2, 2]),),
    "quantized_max_pool3d": (lambda: (q(1, 2, 4, 4, 4), [2, 2, 2]),),
    "quantized_batch_norm": (lambda: (q(1, 3, 4, 4), t(3), t(3), t(3), p(3), 1e-5, 0.1, 100),),
    # Sparse tensors.
    **dict.fromkeys(("_indices", "_values", "indices", "values", "_nnz", "_dimI", "_dimV", "is_coalesced", "indices_copy",
                     "values_copy", "_indices_copy", "_values_copy", "_to_dense", "to_dense", "_sparse_sum"), (lambda: (coo(4, 5),),)),
    **dict.fromkeys(("crow_indices", "col_indices", "crow_indices_copy", "col_indices_copy"), (lambda: (csr(4, 5),),)),
    **dict.fromkeys(("ccol_indices", "row_indices", "ccol_indices_copy", "row_indices_copy"),
                    (lambda: (t(4, 5).to_sparse_csc(),),)),
    **dict.fromkeys(("_coalesce", "coalesce"), (lambda: (torch.sparse_coo_tensor(n(0, 0, 1, 1, 1, 2).view(2, 3), t(3), (4, 5)),),)),
    "_coalesced": (lambda: (coo(4, 5), True),),
    **dict.fromkeys(("_to_sparse", "to_sparse", "_to_sparse_csr", "to_sparse_csr", "_to_sparse_csc", "to_sparse_csc"),
                    (lambda: (t(4, 5) * b(4, 5),),)),
    **dict.fromkeys(("_to_sparse.sparse_dim", "to_sparse.sparse_dim"), (lambda: (t(4, 5) * b(4, 5), 1),)),
    **dict.fromkeys(("_to_sparse_bsr", "to_sparse_bsr", "_to_sparse_bsc", "to_sparse_bsc"), (lambda: (t(4, 6), [2, 3]),)),
    "to_dense_backward": (lambda: (t(4, 5), coo(4, 5)),),
    "_sparse_sum.dim": (lambda: (coo(4, 5), [0]),), "_sparse_sum.dtype": (lambda: (coo(4, 5), torch.float64),),
    "_sparse_sum.dim_dtype": (lambda: (coo(4, 5), [0], torch.float64),),
    "_sparse_sum_backward": (lambda: (torch.sparse.sum(x := coo(4, 5), 0), x, [0]),),
    **dict.fromkeys(("_sparse_softmax", "_sparse_log_softmax"), (lambda: (coo(4, 5), 1, False),)),
    **dict.fromkeys(("_sparse_softmax.int", "_sparse_log_softmax.int"), (lambda: (coo(4, 5), 1),)),
    **dict.fromkeys(("_sparse_softmax_backward_data", "_sparse_log_softmax_backward_data"),
                    (lambda: (x := coo(4, 5), torch.sparse.softmax(x, 1), 1, x),)),
    "_sparse_mm": (lambda: (coo(4, 5), t(5, 3)),), "_sparse_mm.reduce": (lambda: (csr(4, 5), t(5, 3), "sum"),),
    "_sparse_mm_reduce_impl": (lambda: (csr(4, 5), t(5, 3), "sum"),),
    **dict.fromkeys(("_sparse_sparse_matmul",), (lambda: (coo(4, 5), coo(5, 3)),)),
    **dict.fromkeys(("smm", "hspmm"), (lambda: (coo(4, 5), t(5, 3)),)),
    **dict.fromkeys(("sspaddmm", "_sparse_addmm"), (lambda: (coo(4, 3), coo(4, 5), t(5, 3)), lambda: (t(4, 3), coo(4, 5), t(5, 3)))),
    "_sparse_csr_sum.dim_dtype": (lambda: (csr(4, 5), [0], True),), "_sparse_csr_prod.dim_dtype": (lambda: (csr(4, 5), [0], True),),
    "sparse_mask": (lambda: (t(4, 5), coo(4, 5)),), "_sparse_mask_projection": (lambda: (coo(4, 5), coo(4, 5)),),
    "_sparse_broadcast_to": (lambda: (coo(1, 5), [4, 5]),),
    "copy_sparse_to_sparse": (lambda: (coo(4, 5), coo(4, 5)),), "resize_as_sparse": (lambda: (coo(4, 5), coo(4, 5)),),
    **dict.fromkeys(("sparse_resize", "sparse_resize_and_clear"), (lambda: (coo(4, 5), [6, 7], 2, 0),)),
    "_spdiags": (lambda: (t(3, 4), n(-1, 0, 1), [4, 4]),),
    "_gather_sparse_backward": (lambda: (t(4, 5), 0, i(4, 2, 5), t(2, 5)),),
    **dict.fromkeys(("sparse_coo_tensor.indices", "_sparse_coo_tensor_unsafe"), (lambda: (n(0, 1, 1, 2).view(2, 2), t(2), [4, 5]),)),
    "sparse_coo_tensor.size": (lambda: ([4, 5],),),
    **dict.fromkeys(("sparse_compressed_tensor.comp_plain_value_size", "_sparse_compressed_tensor_unsafe"), (lambda: (n(0, 1, 2), n(0, 1), t(2), [2, 2], {"layout": torch.sparse_csr}),)),
    "sparse_compressed_tensor.comp_plain_value": (lambda: (n(0, 1, 2), n(0, 1), t(2), {"layout": torch.sparse_csr}),),
    "_sparse_coo_tensor_with_dims": (lambda: (2, 0, [4, 5], {"layout": torch.sparse_coo}),),
    "_sparse_coo_tensor_with_dims_and_tensors": (lambda: (2, 0, [4, 5], n(0, 1, 1, 2).view(2, 2), t(2), {"layout": torch.sparse_coo}),),
    "sparse_coo_tensor.indices_size": (lambda: (n(0, 1, 1, 2).view(2, 2), t(2), [4, 5]),),
    **dict.fromkeys(("sparse_csr_tensor.crow_col_value", "sparse_csc_tensor.ccol_row_value", "_sparse_csr_tensor_unsafe",
                     "_sparse_csc_tensor_unsafe", "sparse_csr_tensor.crow_col_value_size", "sparse_csc_tensor.ccol_row_value_size"),
                    (lambda: (n(0, 1, 2), n(0, 1), t(2), [2, 2]),)),
    **dict.fromkeys(("sparse_bsr_tensor.crow_col_value", "sparse_bsc_tensor.ccol_row_value", "_sparse_bsr_tensor_unsafe",
                     "_sparse_bsc_tensor_unsafe", "sparse_bsr_tensor.crow_col_value_size", "sparse_bsc_tensor.ccol_row_value_size"),
                    (lambda: (n(0, 1, 2), n(0, 1), t(2, 2, 3), [4, 6]),)),
    # Tensors in oneDNN's layout.
    "to_mkldnn": (lambda: (t(3, 4),),), "to_mkldnn_backward": (lambda: (dnn(3, 4), t(3, 4)),),
    "_mkldnn_reshape": (lambda: (dnn(3, 4), [2, 6]),), "_mkldnn_transpose": (lambda: (dnn(3, 4), 0, 1),),
    "mkldnn_linear": (lambda: (dnn(3, 5), t(4, 5), t(4)),),
    "mkldnn_linear_backward_input": (lambda: ([3, 5], dnn(3, 4), t(4, 5)),),
    "mkldnn_linear_backward_weights": (lambda: (dnn(3, 4), dnn(3, 5), t(4, 5), True),),
    "mkldnn_linear_backward": (lambda: (dnn(3, 5), dnn(3, 4), t(4, 5), [True, True, True]),),
    "mkldnn_convolution": (lambda: (t(1, 3, 5, 5), t(4, 3, 3, 3), t(4), [0, 0], [1, 1], [1, 1], 1),),
    "mkldnn_max_pool2d": (lambda: (dnn(1, 2, 6, 6), [2, 2]),), "mkldnn_max_pool3d": (lambda: (dnn(1, 2, 4, 4, 4), [2, 2, 2]),),
    "mkldnn_max_pool2d_backward": (
        lambda: (dnn(1, 2, 3, 3), torch.max_pool2d(x := dnn(1, 2, 6, 6), 2), x, [2, 2], [2, 2]),),
    "mkldnn_max_pool3d_backward": (
        lambda: (dnn(1, 2, 2, 2, 2), torch.max_pool3d(x := dnn(1, 2, 4, 4, 4), 2), x, [2, 2, 2], [2, 2, 2]),),
    "mkldnn_adaptive_avg_pool2d": (lambda: (dnn(1, 2, 6, 6), [3, 3]),),
    "mkldnn_adaptive_avg_pool2d_backward": (lambda: (dnn(1, 2, 3, 3), dnn(1, 2, 6, 6)),),
    "mkldnn_reorder_conv2d_weight": (lambda: (dnn(4, 3, 3, 3),),), "mkldnn_reorder_conv3d_weight": (lambda: (dnn(4, 3, 3, 3, 3),),),
    # fbgemm.
    "fbgemm_linear_quantize_weight": (lambda: (t(4, 5),),),
}  # fmt: skip


_WINDOWS: Final = ("bartlett", "blackman", "hamming", "hann", "kaiser")
#: Arguments of the overloads of windows after the length.
_SHAPED: Final[dict[str, Arguments]] = {
    "periodic": (False,), "periodic_alpha": (False, 0.6), "beta": (True, 8.0), "periodic_alpha_beta": (False, 0.6, 0.4),
}  # fmt: skip


def _window(*rest: Any) -> Arguments:
    return (9, *rest)


SAMPLES: Final[Samples] = {
    # Of one tensor, and of two.
    **dict.fromkeys(
        ("_cast_Byte", "_cast_Char", "_cast_Double", "_cast_Float", "_cast_Half", "_cast_Int", "_cast_Long", "_cast_Short",
         "_shape_as_tensor", "lift", "lift_fresh", "mT", "mH", "adjoint", "numpy_T", "matrix_H", "_neg_view", "_neg_view_copy", "_lazy_clone",
         "alias", "detach", "is_contiguous.default", "is_conj", "is_neg", "is_signed", "numel", "dim", "sym_numel", "storage_offset",
         "sym_storage_offset", "_is_zerotensor", "is_inference", "is_floating_point", "is_complex", "is_distributed",
         "is_same_size", "_debug_has_internal_overlap", "_choose_qparams_per_tensor", "_saturate_weight_to_fp16",
         "_autocast_to_full_precision", "sym_is_contiguous", "rand_like", "randn_like", "matrix_exp",
         "_foreach_powsum", "linalg__powsum", "native_norm", "frobenius_norm", "nuclear_norm", "norm",
         "infinitely_differentiable_gelu_backward", "is_set_to", "is_pinned", "zero",
         "_has_same_storage_numel", "_has_compatible_shallow_copy_type", "_new_zeros_with_same_feature_meta", "type_as", "to.other",
         "_conj", "_conj_physical", "dense_dim", "sparse_dim", "copy", "_add_relu"),
        (lambda: (t(3, 3), t(3, 3)), lambda: (t(2, 4, 4), t(2, 4, 4))),
    ),
    "type_as": (lambda: (t(3, 4), i(4, 3, 4)),),
    "to.other": (lambda: (t(3, 4), i(4, 3, 4)),),
    "to.device": (lambda: (t(3, 4), torch.device("cpu"), torch.float64),),
    "_is_all_true": (lambda: (b(3, 4),), lambda: (f(1.0, 1.0) > 0,)),
    "_is_any_true": (lambda: (b(3, 4),),),
    "is_nonzero": (lambda: (f(2.0),), lambda: (f(0.0),)),
    "size.int": (lambda: (t(3, 4), 1),),
    **dict.fromkeys(("sym_size.int", "stride.int", "sym_stride.int"), (lambda: (t(3, 4), 0),)),
    "result_type": (lambda: (i(3, 2), t(3)),),
    "result_type.Scalar": (lambda: (i(3, 2), 1.5),),
    "result_type.Scalar_Tensor": (lambda: (1.5, i(3, 2)),),
    "is_contiguous.memory_format": (lambda: (t(1, 2, 3, 4), torch.contiguous_format),),
    "poisson": (lambda: (4 * p(3, 4),),),
    "_standard_gamma": (lambda: (p(3, 4),),),
    "_sample_dirichlet": (lambda: (p(3, 4),),),
    "_standard_gamma_grad": (lambda: (p(3, 4), p(3, 4)),),
    "_dirichlet_grad": (lambda: (p(3, 4), p(3, 4), 2 + p(3, 4)),),
    "binomial": (lambda: (10 * torch.ones(3, 4), p(3, 4)),),
    "bernoulli": (lambda: (p(3, 4),),), "bernoulli.p": (lambda: (p(3, 4), 0.4),),
    "bernoulli_.float": (lambda: (t(3, 4), 0.4),), "bernoulli.Tensor": (lambda: (t(3, 4), p(3, 4)),),
    "random": (lambda: (t(3, 4),),), "random.to": (lambda: (t(3, 4), 7),), "random.from": (lambda: (t(3, 4), 2, 9),),
    "normal_functional": (lambda: (t(3, 4), 1.0, 2.0),),
    "native_dropout": (lambda: (t(3, 4), 0.5, True),), "_fused_dropout": (lambda: (t(3, 4), 0.5),),
    **dict.fromkeys(
        ("dropout", "alpha_dropout"), (lambda: (t(3, 4), 0.4, True), lambda: (t(3, 4), 0.4, False)),
    ),
    **dict.fromkeys(
        ("feature_dropout", "feature_alpha_dropout"), (lambda: (t(3, 4, 2), 0.4, True), lambda: (t(3, 4, 2), 0.4, False)),
    ),
    "rrelu_with_noise_functional": (lambda: (t(3, 4), p(3, 4), 0.1, 0.3, True),),
    "randint_like": (lambda: (t(3, 4), 7),),
    "randint_like.low_dtype": (lambda: (t(3, 4), 2, 7),), "randint_like.low_generator_dtype": (lambda: (t(3, 4), 2, 7),),
    "randint_like.Tensor": (lambda: (t(3, 4), n(7)[0]),),
    "randperm": (lambda: (7,),),
    **dict.fromkeys(("rand.generator", "randn.generator"), (lambda: ([3, 4],),)),
    **dict.fromkeys(("rand.generator_with_names", "rand.generator_out", "randn.generator_out"), (lambda: ([3, 4],),)),
    "randint.generator": (lambda: (7, [3, 4]),), "randint.low_generator": (lambda: (2, 7, [3, 4]),),
    # Of numbers alone.
    **dict.fromkeys(
        tuple(f"{name}_window" for name in _WINDOWS), (_window,),
    ),
    **{f"{name}_window.{kind}": (partial(_window, *rest),) for name in _WINDOWS for kind, rest in _SHAPED.items()},
    "fft_fftfreq": (lambda: (7, 0.5),), "fft_rfftfreq": (lambda: (7, 0.5),),
    "range": (lambda: (1, 5),), "range.step": (lambda: (1, 8, 2),), "range.out_": (lambda: (1, 5),),
    "tril_indices": (lambda: (4, 3, 1),), "triu_indices": (lambda: (4, 3, 1),),
    "_make_dep_token": (tuple,),
    "zeros": (lambda: ([3, 4],),), "ones": (lambda: ([3, 4],),),
    "_philox_key_fold_in": (lambda: (i(99, 2).to(torch.uint64), 3),),
    "_philox_key_split": (lambda: (i(99, 2).to(torch.uint64), 3),),
    "_philox_uniform": (lambda: (t(3, 4), i(99, 2).to(torch.uint64)),),
    "_philox_normal": (lambda: (t(3, 4), i(99, 2).to(torch.uint64)),),
    # Shapes and indices.
    "_dim_arange": (lambda: (t(3, 4), 1),), "fill_diagonal": (lambda: (t(4, 3), 7.0), lambda: (t(7, 3), 2.0, True)),
    "_reshape_from_tensor": (lambda: (t(3, 4), n(2, 6)),), "_reshape_copy": (lambda: (t(3, 4), [2, 6]),),
    "_reshape_alias": (lambda: (t(3, 4), [2, 6], [6, 1]),),
    **dict.fromkeys(("movedim.int", "moveaxis.int"), (lambda: (t(2, 3, 4), 0, 2),)),
    "moveaxis.intlist": (lambda: (t(2, 3, 4), [0, 1], [2, 0]),),
    **dict.fromkeys(("swapaxes", "swapdims"), (lambda: (t(2, 3, 4), 0, 2),)),
    "slice_inverse": (lambda: (t(5, 4), t(5, 4), 0, 0, 5),),
    "view.dtype": (lambda: (t(3, 4), torch.int32),), "view_copy.dtype": (lambda: (t(3, 4), torch.int32),),
    "native_channel_shuffle": (lambda: (t(2, 6, 3, 3), 3),),
    "squeeze.dims": (lambda: (t(3, 1, 4, 1), [1, 3]),), "squeeze_copy.dims": (lambda: (t(3, 1, 4, 1), [1, 3]),),
    "unsafe_split_with_sizes": (lambda: (t(6, 2), [1, 2, 3]),),
    "unique_dim": (lambda: (i(3, 6, 2), 0, True, True, True),),
    "unique_dim_consecutive": (lambda: (i(2, 6, 1), 0, True, True),),
    "nonzero_numpy": (lambda: (t(3, 4) * b(3, 4),),),
    **dict.fromkeys(("_unsafe_index", "_unsafe_masked_index"), (lambda: (t(4, 3), [i(4, 5)]),)),
    **dict.fromkeys(("_unsafe_index_put", "_index_put_impl"), (lambda: (t(4, 3), [n(0, 2)], t(2, 3), False),)),
    "index_select_backward": (lambda: (t(2, 3), [4, 3], 0, n(1, 3)),),
    "gather_backward": (lambda: (t(2, 3), t(4, 3), 0, i(4, 2, 3), False),),
    "masked_select_backward": (lambda: (t(4), t(2, 3), torch.tensor([[True, True, False], [False, True, True]])),),
    "value_selecting_reduction_backward": (lambda: (t(3), 1, i(4, 3), [3, 4], False),),
    "trace_backward": (lambda: (t(), [3, 4]),), "embedding_renorm": (lambda: (3 * t(5, 4), n(1, 3), 1.0, 2.0),),
    "embedding_backward": (lambda: (t(3, 4), i(5, 3), 5, -1, False, False),),
    "embedding_sparse_backward": (lambda: (t(3, 4), i(5, 3), 5, -1, False),),
    "_embedding_bag_forward_only": (lambda: (t(5, 4), i(5, 6), n(0, 2, 4)),),
    "_embedding_bag_sparse_backward": (lambda: (t(2, 4), i(5, 4), n(0, 2), n(0, 0, 1, 1), n(2, 2), 5, False, 0, None),),
    "_embedding_bag_dense_backward": (
        lambda: (t(2, 4), i(5, 4), n(0, 0, 1, 1), n(2, 2), i(4, 2, 4), 5, False, 0, None),),
    "searchsorted.Scalar": (lambda: (f(1.0, 2.0, 3.0, 4.0), 2.5),),
    "_convert_indices_from_coo_to_csr": (lambda: (n(0, 0, 1, 3), 4),),
    "_convert_indices_from_csr_to_coo": (lambda: (n(0, 2, 3), n(0, 1, 1)),),
    "where": (lambda: (b(3, 4),),), "where.Scalar": (lambda: (b(3, 4), 1.0, 2.0),),
    "where.ScalarSelf": (lambda: (b(3, 4), 1.0, t(3, 4)),), "where.ScalarOther": (lambda: (b(3, 4), t(3, 4), 1.0),),
    "flatten_dense_tensors": (lambda: ([t(3, 4), t(5)],),),
    "unflatten_dense_tensors": (lambda: (t(17), [t(3, 4), t(5)]),),
    "pad_sequence": (lambda: ([t(3, 4), t(5, 4)], True, 0.5),), "_to_cpu": (lambda: ([t(3, 4), t(5)],),),
    **dict.fromkeys(("concat", "concatenate", "row_stack", "vstack"), (lambda: ([t(3, 4), t(2, 4)],),)),
    "_pack_padded_sequence": (lambda: (t(5, 2, 3), n(5, 3), False),),
    "_pack_padded_sequence_backward": (lambda: (_packed()[0], [5, 2, 3], _packed()[1], False),),
    "_pad_packed_sequence": (lambda: (*_packed(), False, 0.0, 5),),
    "_pad_circular": (lambda: (t(1, 2, 4, 4), [1, 1, 1, 1]),), "_pad_enum": (lambda: (t(1, 2, 4, 4), [1, 1, 1, 1], 1),),
    **dict.fromkeys(("reflection_pad3d", "replication_pad3d"), (lambda: (t(1, 2, 3, 3, 3), [1, 1, 1, 1, 1, 1]),)),
    **dict.fromkeys(("reflection_pad3d_backward", "replication_pad3d_backward"),
                    (lambda: (t(1, 2, 5, 5, 5), t(1, 2, 3, 3, 3), [1, 1, 1, 1, 1, 1]),)),
    **dict.fromkeys(("reflection_pad2d", "replication_pad2d"), (lambda: (t(1, 2, 3, 3), [1, 1, 1, 1]),)),
    **dict.fromkeys(("reflection_pad2d_backward", "replication_pad2d_backward"),
                    (lambda: (t(1, 2, 5, 5), t(1, 2, 3, 3), [1, 1, 1, 1]),)),
    "_sobol_engine_initialize_state_": (lambda: (torch.zeros(3, 30, dtype=torch.int64), 3),),
    "_sobol_engine_draw": (lambda: (n(0, 0, 0), 4, i(1 << 20, 3, 30), 3, 0, torch.float32),),
    "_sobol_engine_ff_": (lambda: (n(0, 0, 0), 4, i(1 << 20, 3, 30), 3, 0),),
    "_sobol_engine_scramble_": (lambda: (i(1 << 20, 3, 30), i(2, 3, 30, 30), 3),),
    "_rowwise_prune": (lambda: (t(3, 4), torch.tensor([True, False, True]), torch.int32),),
    "gradient.scalararray": (lambda: (t(5, 6), 0.5, [0, 1]),),
    "gradient.tensorarrayint": (lambda: (t(5), [f(0.0, 1.0, 3.0, 4.0, 6.0)], 0),),
    "histogramdd.int_bins": (lambda: (t(9, 2), 3),),
    # Matrices.
    "ger": (lambda: (t(3), t(4)),), "chain_matmul": (lambda: ([t(3, 4), t(4, 2), t(2, 5)],),),
    "inverse": (lambda: (t(3, 3) + 3 * torch.eye(3),),),
    "orgqr": (lambda: (torch.geqrf(t(4, 3))),),
    "_lu_with_info": (lambda: (t(3, 3),),),
    "_cholesky_solve_helper": (lambda: (t(3, 2), torch.tril(t(3, 3)) + 3 * torch.eye(3), False),),
    "_compute_linear_combination": (lambda: (t(3, 4), t(2, 3)),), "matrix_exp_backward": (lambda: (t(3, 3), t(3, 3)),),
    "_euclidean_dist": (lambda: (t(3, 4), t(5, 4)),), "tensordot": (lambda: (t(2, 3, 4), t(3, 4, 5), [1, 2], [0, 1]),),
    "linalg_norm.ord_str": (lambda: (t(3, 4), "fro"),), "linalg_cond.p_str": (lambda: (t(3, 3), "fro"),),
    "linalg_matrix_norm": (lambda: (t(3, 4), 1),),
    **dict.fromkeys(("linalg_matrix_rank", "linalg_pinv"), (lambda: (t(3, 4), 1e-3),)),
    **dict.fromkeys(("linalg_matrix_rank.tol_tensor", "linalg_pinv.rcond_tensor"), (lambda: (t(3, 4), f(1e-3)[0]),)),
    "norm.ScalarOpt_dtype": (lambda: (t(3, 4), 2.0, torch.float64),),
    "norm.ScalarOpt_dim_dtype": (lambda: (t(3, 4), 2.0, [1], False, torch.float64),),
    "norm.dtype_out": (lambda: (t(3, 4), 2.0, [1], False, torch.float64),),
    "native_norm.ScalarOpt_dim_dtype": (lambda: (coo(3, 4), 2.0, [], False, None),),
    "native_norm": (lambda: (coo(3, 4),),),
    "frobenius_norm": (lambda: (t(3, 4), [1]),), "nuclear_norm.dim": (lambda: (t(2, 3, 4), [1, 2]),),
    "norm_except_dim": (lambda: (t(3, 4), 2, 0),), "_int_mm": (lambda: (i(9, 20, 16).to(torch.int8), i(9, 16, 8).to(torch.int8)),),
    "_addmm_activation": (lambda: (t(4), t(3, 5), t(5, 4)),),
    "addmm.dtype": (lambda: (t(3, 4).bfloat16(), t(3, 5).bfloat16(), t(5, 4).bfloat16(), torch.float32),),
    "baddbmm.dtype": (lambda: (t(2, 3, 4).bfloat16(), t(2, 3, 5).bfloat16(), t(2, 5, 4).bfloat16(), torch.float32),),
    "mm.dtype": (lambda: (t(3, 5).bfloat16(), t(5, 4).bfloat16(), torch.float32),),
    "bmm.dtype": (lambda: (t(2, 3, 5).bfloat16(), t(2, 5, 4).bfloat16(), torch.float32),),
    "_scaled_mm": (lambda: (t(16, 16).to(torch.float8_e4m3fn), t(16, 16).to(torch.float8_e4m3fn).t(), f(0.5)[0], f(2.0)[0], None, None,
                            torch.bfloat16),),
    "_grouped_mm": (lambda: (t(16, 16).bfloat16(), t(2, 16, 16).bfloat16(), torch.tensor([8, 16], dtype=torch.int32)),),
    "_weight_int8pack_mm": (lambda: (t(3, 32).bfloat16(), i(9, 16, 32).to(torch.int8), p(16).bfloat16()),),
    "_convert_weight_to_int4pack_for_cpu": (lambda: (i(16, 32, 64).to(torch.int32), 2),),
    "_weight_int4pack_mm_for_cpu": (
        lambda: (t(3, 64).bfloat16(), i(256, 32, 32).to(torch.uint8), 32, p(2, 32, 2).bfloat16()),),
    "_dyn_quant_pack_4bit_weight": (lambda: (i(256, 32, 32).to(torch.uint8), p(32, 1), None, 64, 64, 32),),
    "matmul_backward": (lambda: (t(3, 4), t(3, 5), t(5, 4), [True, True]),),
    "linear_backward": (lambda: (dnn(3, 5), t(3, 4), t(4, 5), [True, True, True]),),
    "cumprod_backward": (lambda: (t(3, 4), t(3, 4), 1, t(3, 4)),),
    "cummaxmin_backward": (lambda: (t(3, 4), t(3, 4), i(4, 3, 4), 1),),
    "_cummax_helper": (lambda: (t(3, 4), torch.zeros(3, 4), torch.zeros(3, 4, dtype=torch.int64), 1),),
    "_cummin_helper": (lambda: (t(3, 4), torch.zeros(3, 4), torch.zeros(3, 4, dtype=torch.int64), 1),),
    "choose_qparams_optimized": (lambda: (t(40), 40, 20, 0.16, 8),),
    # What returns a token, so that it is not moved.
    "_functional_assert_async.msg": (lambda: (b(1) | True, "never", t(1)),),
    "_functional_assert_scalar": (lambda: (1, "never", t(1)),),
    **dict.fromkeys(("_functional_sym_constrain_range", "_functional_sym_constrain_range_for_size"), (lambda: (3, 0, 9, t(1)),)),
    "_autocast_to_full_precision": (lambda: (t(3, 4).bfloat16(), True, True),),
    "_autocast_to_reduced_precision": (lambda: (t(3, 4), True, True, torch.float16, torch.bfloat16),),
    "_native_batch_norm_legit.no_stats": (lambda: (t(3, 4, 2), t(4), t(4), True, 0.1, 1e-5),),
    "_native_batch_norm_legit_functional": (lambda: (t(3, 4, 2), t(4), t(4), t(4), p(4), True, 0.1, 1e-5),),
    "_batch_norm_with_update_functional": (lambda: (t(3, 4, 2), t(4), t(4), t(4), p(4), 0.1, 1e-5),),
    # What returns nothing: a side accepts the arguments or raises.
    "_assert_async": (lambda: (b(1) | True,),), "_assert_async.msg": (lambda: (b(1) | True, "never"),),
    "_assert_tensor_metadata": (lambda: (t(3, 4), [3, 4], [4, 1], torch.float32),),
    "_validate_sparse_coo_tensor_args": (lambda: (n(0, 1, 1, 2).view(2, 2), t(2), [4, 5]),),
    **dict.fromkeys(("_validate_sparse_csr_tensor_args", "_validate_sparse_csc_tensor_args"),
                    (lambda: (n(0, 1, 2), n(0, 1), t(2), [2, 2]),)),
    **dict.fromkeys(("_validate_sparse_bsr_tensor_args", "_validate_sparse_bsc_tensor_args"),
                    (lambda: (n(0, 1, 2), n(0, 1), t(2, 2, 3), [4, 6]),)),
    "_validate_sparse_compressed_tensor_args": (lambda: (n(0, 1, 2), n(0, 1), t(2), [2, 2], torch.sparse_csr),),
    "_validate_compressed_sparse_indices": (lambda: (True, n(0, 1, 2), n(0, 1), 2, 2, 2),),
    "float_power_.Scalar": (lambda: (p(3, 4).double(), 2.5),), "float_power_.Tensor": (lambda: (p(3, 4).double(), p(3, 4)),),
    "tensor_split.sections": (lambda: (t(6, 2), 3, 0),),
    "chalf": (lambda: (t(3, 4),),), "hash_tensor": (lambda: (t(3, 4),),),
    # Kernels that PyTorch tests its dispatcher with.
    "_test_optional_intlist": (lambda: (i(9, 3).int(), [1, 2, 3]),),
    "_test_optional_filled_intlist": (lambda: (i(9, 2).int(), [1, 2]),),
    "_test_optional_floatlist": (lambda: (t(3), [1.0, 2.0, 3.0]),),
    **dict.fromkeys(
        ("_test_string_default", "_test_ambiguous_defaults", "_test_warn_in_autograd", "_foobar",
         "_test_autograd_multiple_dispatch.fullcoverage", "_test_autograd_multiple_dispatch_view",
         "_test_autograd_multiple_dispatch_view_copy"),
        (lambda: (t(3, 4),),),
    ),
    "_test_check_tensor": (lambda: (b(1) | True,),),
    "_test_ambiguous_defaults.b": (lambda: (t(3, 4), 2, "2"),),
    "_test_autograd_multiple_dispatch.ntonly": (lambda: (t(3, 4), True),),
    "_test_functorch_fallback": (lambda: (t(3, 4), t(3, 4)),),
    "_test_serialization_subcmul": (lambda: (t(3, 4), t(3, 4), 2.0),),
    "_test_parallel_materialize": (lambda: (t(3, 4), 2),),
    # What autograd knows of a tensor that is no result.
    **dict.fromkeys(("is_leaf", "output_nr", "_version", "retains_grad", "data"), (lambda: (t(3, 4),),)),
    "requires_grad_": (lambda: (t(3, 4), False),), "_fw_primal": (lambda: (t(3, 4), 0),),
    **_LAYERS,
    **_STORAGES,
}  # fmt: skip
