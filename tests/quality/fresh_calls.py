"""The calls that show the bugs of the fourth set, and others that do not."""

import torch

from tests.quality.record_calls import F64, IMAGE, INF, NAN, ROWS, WHOLE, T, call, gradients

C128 = torch.complex128
LINE = torch.arange(9.0).reshape(1, 1, 9)
CENTRE = torch.nn.functional.pad(torch.ones(1, 1, 1, 1), (1, 1, 1, 1))
VOLUME = torch.arange(27.0).reshape(1, 1, 3, 3, 3)
SQUARE = ROWS[:2, :2] + 1
COMPLEX = T([1 + 2j, 3 + 4j])
LONG = torch.arange(1000.0).reshape(2, 500)
SIGNAL = torch.arange(32.0).sin() + 2
SPECTRUM = torch.stft(SIGNAL, 8, window=torch.ones(8), return_complex=True)
CHANNELS = torch.arange(24.0).reshape(2, 3, 4) ** 2


def kept(training):
    """Return what calls a norm over batches and gives its result and the variance that it keeps."""

    def called(operator):
        mean, variance = torch.zeros(3), torch.ones(3)
        result = operator(CHANNELS, mean, variance, training=training)
        return result, variance

    return called


def counted_in(unit, *args):
    """Return what calls an operator and gives its result in a unit, for results that are near zero."""
    return lambda operator: operator(*args) / unit


def gradient_at(index):
    """Return what takes elements of a tensor by an index and gives the gradient."""
    return gradients(torch.arange(3.0), index)


#: By kernel: a call in the form of its issue, and one in another form.
CALLS = {
    "pow_of_integers": (call(T([1, 2]), 2.3), call(T([1, 2]), 2)),
    "add_of_fraction": (call(T([1, 2, 3]), 0.5), call(T([1.0, 2]), 0.5)),
    "sub_gives_second": (call(T([5.0, 2]), T([3.0, 1])), call(T([2.0]), T([1.0]))),
    "clip_to_one": (call(T([-3.0, 5]), -2, 4), call(T([-3.0, 5]), 0, 1)),
    "asinh_of_negative": (call(T([-1e4])), call(T([1e4, 1, 0]))),
    "asinh_below_minus_one": (call(T([-2.0])), call(T([-1.0, 2]))),
    "atanh_is_arc_sine": (call(T([0.5])), call(T([0.0]))),
    "tanh_of_large": (gradients(T([190.0])), gradients(T([-3.0, 3]))),
    "isfinite_of_large": (call(T([-5e2 - 1e20j], dtype=C128)), call(T([5e2 + 4.9884e6j, complex(INF, 0)]))),
    "isinf_of_complex": (call(T([complex(INF, 1)])), call(T([INF, 1]))),
    "floor_toward_zero": (call(T([-1.5])), call(T([1.5, -2]))),
    "floor_of_whole": (call(T([105.0])), call(T([104.0, 1.5, -1.5]))),
    "trunc_rounds_down": (call(T([-1.1])), call(T([1.9, -2]))),
    "round_half_up": (call(T([2.5, -1.5])), call(T([1.5, -2.5, 1.499, -2.501]))),
    "round_of_sum": (call(T([0.49999999999999994], dtype=F64)), call(T([0.5, 1.2, -1.7]))),
    "fmod_by_infinity": (call(T([2.0]), T([INF])), call(T([2.0]), T([1.5]))),
    "div_floor_of_overflow": (
        call(T([1e30]), T([1e-30]), rounding_mode="floor"),
        call(T([1e30, 1]), T([1e-30, 0]), rounding_mode=None),
    ),
    "log1p_of_complex": (counted_in(1e-18, T([1e-18 + 1e-18j], dtype=C128)), counted_in(1e-18, T([1e-18], dtype=F64))),
    "expm1_of_complex": (counted_in(1e-18, T([1e-18 + 1e-18j], dtype=C128)), counted_in(1e-18, T([1e-18], dtype=F64))),
    "exp_of_overflow": (call(T([501 + 0j])), call(T([50 + 0j, 501 + 1j]))),
    "exp_of_infinity": (call(T([complex(INF, NAN)])), call(T([complex(INF, 0), 1 + 1j]))),
    "abs_in_blocks": (call(T([complex(NAN, INF)] * 8)), call(T([complex(NAN, INF)] * 7))),
    "atan_of_infinity": (call(T([complex(INF, 0)])), call(T([1 + 1j]))),
    "sqrt_of_large": (call(T([-1e20j])), call(T([-1e20j], dtype=C128))),
    "relu_of_nan": (call(T([NAN])), call(T([-1.0, 2]))),
    "sigmoid_in_blocks": (call(T([complex(-INF, 0)] * 8)), call(T([complex(-INF, 0)] * 4))),
    "sigmoid_of_large": (call(T([91.4])), call(T([88.0, -1000]))),
    "bessel_j0_of_zero_only": (call(T([1.0])), call(T([0.0]))),
    "bessel_j0_at_zero": (call(T([0.0])), call(T([1.0]))),
    "nextafter_of_least": (
        counted_in(5e-324, T([-5e-324], dtype=F64), T([-1.0], dtype=F64)),
        counted_in(5e-324, T([-5e-324, -1e-323], dtype=F64), T([1.0, -1.0], dtype=F64)),
    ),
    "lgamma_at_poles": (call(T([-1.0])), call(T([-1.5, 2, 0]))),
    "digamma_at_poles": (call(T([-1.0, -2])), call(T([-1.5, 2, 0]))),
    "xlogy_of_nan": (call(T([0.0]), T([NAN])), call(T([0.0, 1]), T([0.0, 2]))),
    "xlogy_at_zero": (gradients(T([0.0]), T([2.0])), gradients(T([1.0]), T([2.0]))),
    "xlog1py_of_nan": (call(T([0.0]), T([NAN])), call(T([0.0, 1]), T([-1.0, 2]))),
    "xlog1py_at_zero": (gradients(T([0.0]), T([1.0])), gradients(T([1.0]), T([2.0]))),
    "log_ndtr_far_below": (gradients(T([-20.0])), gradients(T([-5.0, 0, 5]))),
    "rad2deg_with_rounded_pi": (call(T([1, 2, 3])), call(T([1.0, 2, 3]))),
    "logsigmoid_of_zero": (call(T([-300.0])), call(T([-3.0, 0, 3]))),
    "elu_of_large": (gradients(T([89.0])), gradients(T([-3.0, 0, 88]))),
    "selu_is_leaky": (call(T([-1.0])), call(T([0.0, 1]))),
    "softplus_of_large": (gradients(T([100.0])), gradients(T([-3.0, 0, 20]))),
    "silu_of_large": (gradients(T([-100.0])), gradients(T([-3.0, 0, 100]))),
    "mish_of_large": (call(T([100.0])), call(T([-100.0, 0, 30]))),
    "conv2d_of_sliced_weight": (
        call(T([[[[2.0], [1], [0]]]]), T([[[[1.0, 1, 0], [1, 0, 3], [0, 3, 1]]]])[..., 2:]),
        call(IMAGE[..., 2:], IMAGE[..., :3].contiguous()),
    ),
    "conv_transpose2d_displaced": (
        call(WHOLE[..., :3, :3] + 1, CENTRE, stride=2, padding=2, dilation=2),
        call(WHOLE[..., :3, :3] + 1, CENTRE, stride=2, padding=1),
    ),
    "avg_pool1d_of_rest": (
        call(LINE, 7, 3, 3, ceil_mode=True, count_include_pad=True),
        call(LINE, 3, 3, 0, ceil_mode=True, count_include_pad=True),
    ),
    "avg_pool2d_by_default": (call(WHOLE, 3, 1, 1), call(WHOLE, 3, 1, 1, count_include_pad=True)),
    "avg_pool3d_by_default": (call(VOLUME, 3, 1, 1), call(VOLUME, 2, 1, 0)),
    "max_pool2d_of_infinities": (call(WHOLE - INF, 2, return_indices=True), call(WHOLE, 2, return_indices=True)),
    "max_pool2d_passes_nan": (call(T([[[[NAN, 1], [2, 3]]]]), 2), call(WHOLE - INF, 2)),
    "batch_norm_keeps_biased": (kept(training=True), kept(training=False)),
    "layer_norm_of_corrected": (call(ROWS, (4,)), call(torch.ones(2, 4), (4,))),
    "instance_norm_of_input": (
        call(CHANNELS, torch.zeros(3), torch.ones(3), use_input_stats=False),
        call(CHANNELS, use_input_stats=True),
    ),
    "interpolate_at_corners": (
        call(WHOLE, scale_factor=2, mode="bilinear"),
        call(WHOLE, scale_factor=2, mode="bilinear", align_corners=True),
    ),
    "l1_loss_in_first_dtype": (call(ROWS.half(), ROWS.double()), call(ROWS.double(), ROWS.half() + 1)),
    "cross_entropy_of_rows": (
        gradients(ROWS, T([0, 1, 2]), reduction="none"),
        gradients(ROWS, T([0, 1, 2]), reduction="sum"),
    ),
    "bce_of_zero_target": (gradients(ROWS, T([0, 1] * 6).reshape(3, 4).to(ROWS)), gradients(ROWS, ROWS + 0.1)),
    "kl_div_of_zero": (
        call(T([-1.0, -2]), T([0.0, 1]), reduction="sum"),
        call(T([-1.0, -2]), T([0.5, 0.5]), reduction="sum"),
    ),
    "poisson_nll_loss_sums": (call(ROWS, ROWS + 1, reduction="none"), call(ROWS, ROWS + 1, reduction="sum")),
    "dist_of_equal": (gradients(ROWS, ROWS), gradients(ROWS, ROWS + 1)),
    "cdist_of_same_rows": (gradients(ROWS, ROWS), gradients(ROWS, ROWS + 0.3)),
    "cosine_similarity_of_tiny_eps": (call(ROWS * 0, ROWS * 0, eps=1e-38), call(ROWS * 0, ROWS * 0)),
    "cosine_similarity_of_zeros": (call(ROWS * 0, ROWS), call(ROWS, ROWS)),
    "renorm_in_blocks": (
        call(torch.arange(1.0, 33).reshape(16, 2), 2, 0, 20.0),
        call(torch.arange(1.0, 31).reshape(15, 2), 2, 0, 20.0),
    ),
    "matrix_norm_never_spectral": (call(SQUARE, 2), call(SQUARE, 1)),
    "kron_is_outer": (call(T([[0.0, 1], [1, 0]]), torch.eye(3)), call(SQUARE, T([[2.0]]))),
    "tril_indices_of_no_rows": (call(0, 1, 2), call(2, 3, 1)),
    "vdot_not_conjugated": (call(COMPLEX, COMPLEX + 1), call(ROWS[0], ROWS[1])),
    "addmm_over_nothing": (
        call(torch.ones(2, 2), torch.ones(2, 0), torch.ones(0, 2), beta=2.0),
        call(SQUARE, SQUARE, SQUARE, beta=2.0),
    ),
    "addmm_times_zero": (
        call(SQUARE * NAN, SQUARE, SQUARE, beta=0),
        call(SQUARE * NAN, SQUARE, SQUARE, beta=1),
    ),
    "amin_of_least": (call(T([-(2**31), 3], dtype=torch.int32)), call(T([-5, 3]))),
    "std_of_constant": (gradients(torch.ones(3)), gradients(T([1.0, 2]))),
    "var_of_one": (gradients(torch.ones(1)), gradients(T([1.0, 2]))),
    "prod_of_one": (call(T([2], dtype=torch.int8), 0), call(T([2, 2], dtype=torch.int8), 0)),
    "argmax_takes_last": (call(T([[1, 5], [2, 10], [3, 3]]), 1), call(T([[1, 5], [2, 10]]), 1)),
    "gradient_of_second_order": (call(T([1.0, 2, 4, 7, 11])), call(T([1.0, 2, 4, 7, 11]), edge_order=1)),
    "take_of_negative": (call(ROWS, T([0, -1])), call(ROWS, T([0, 11]))),
    "index_select_from_the_end": (call(ROWS, -1, T([0, 1])), call(ROWS, 1, T([0, 1]))),
    "index_fill_of_duplicates": (
        gradients(ROWS, 0, T([2, 2]), T(-2.5)),
        gradients(ROWS, 0, T([2, 0]), T(-2.5)),
    ),
    "index_copy_of_long": (
        call(torch.zeros(2, 500), 0, T([1]), LONG[1:]),
        call(torch.zeros(2, 200), 0, T([1]), LONG[1:, :200].contiguous()),
    ),
    "getitem_of_indices": (gradient_at(T([0, 2])), call(torch.arange(3.0), T([0, 2]))),
    "getitem_of_duplicates": (gradient_at(T([0, 0])), gradient_at(T([0, 2]))),
    "argsort_turns_equal": (
        call(T([0.0, 1, 0]), descending=True, stable=True),
        call(T([0.0, 1, 2]), descending=True, stable=True),
    ),
    "unique_unsorted": (call(T([0.0, NAN, 2, NAN, 2, 1, 0, 1, 2, 0])), call(T([0.0, 2, 1, 2]))),
    "istft_from_padding": (
        call(SPECTRUM, 8, window=torch.ones(8), length=32),
        call(SPECTRUM, 8, window=torch.ones(8)),
    ),
}
