"""Samples of what a tensor can be stored as: quantized, sparse, and in oneDNN's layout."""

from __future__ import annotations

from typing import Final

import torch

from ci_autotest.opinfo.sample_draws import Arguments, Samples, b, coo, csr, dnn, f, i, n, p, q, qc, t

_QUANT: Final = (0.05, 3, 0, 255)


def _observer() -> Arguments:
    return t(4, 3), n(1), n(1), f(-1.0), f(1.0), f(0.1), torch.zeros(1, dtype=torch.int32), 0.01, 0, 255, 0


STORAGES: Final[Samples] = {
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
