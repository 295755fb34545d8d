"""The calls that show the bugs of the third set, and others that do not."""

import torch

from tests.quality.record_calls import F64, IMAGE, INF, NAN, ROWS, WHOLE, T, call, gradients, into

GRID = torch.nn.functional.affine_grid(T([[[1.0, 0, 0], [0, 1, 0]]]), [1, 1, 5, 5], align_corners=True)
INSIDE = GRID * 0.7
FULL = T([[1.0, 2], [0, 5]])
SINGULAR = T([[1.0, 1], [0, 0]])
QUERY = torch.arange(8.0).reshape(1, 1, 4, 2) / 8

#: By kernel: a call in the form of its issue, and one in another form.
CALLS = {
    "tanh_of_slice": (call(ROWS[:, 2]), call(ROWS)),
    "sinh_in_blocks": (call(torch.full((16,), 89.0)), call(torch.full((15,), 89.0))),
    "sign_of_nan": (call(T([NAN])), call(T([-2.0, 0.0, INF]))),
    "polygamma_of_negative": (call(1, T([-14.5], dtype=F64)), call(1, T([14.5], dtype=F64))),
    "gcd_of_least": (
        call(T([-(2**31)], dtype=torch.int32), T([3 * 2**29], dtype=torch.int32)),
        call(T([-6]), T([4])),
    ),
    "erf_of_negative": (call(T([-1.4, -2.5])), call(T([1.4, 0.0]))),
    "sin_of_large": (call(T([1e20])), call(T([100.0]))),
    "atan2_of_two_dtypes": (call(T(1.0), T(2.0, dtype=F64)), call(T(1.0), T(2.0))),
    "acosh_of_large": (call(T([-4.45712982e08 + 1j], dtype=torch.complex128)), call(T([-3.0 + 1j]))),
    "acosh_left_of_zero": (
        gradients(T([-0.8137 - 0.1476j], dtype=torch.complex128)),
        gradients(T([0.8137 - 0.1476j], dtype=torch.complex128)),
    ),
    "acos_of_large": (call(T([-1e20j])), call(T([1 - 2j]))),
    "softshrink_of_nan": (call(T([NAN, 1])), call(T([2.0, 1]))),
    "hardshrink_of_nan": (call(torch.full((17,), NAN)), call(torch.full((15,), NAN))),
    "relu6_at_six": (gradients(T([6.0])), gradients(T([5.0, 0, 7, -1]))),
    "relu6_of_large": (call(T([6.71e7])), call(T([-1.0, 2, 8]))),
    "rsqrt_of_integers": (call(T([4])), call(T([4.0]))),
    "frexp_of_subnormal": (call(T([1.5e-310], dtype=F64)), call(T([3.0, -0.1, 0], dtype=F64))),
    "isclose_to_infinity": (call(T(0.0), T(INF)), call(T([INF, 0]), T([INF, 1e-9]))),
    "isclose_of_infinities": (call(T(INF), T(INF)), call(T([1.0, 0]), T([1.0, 1]))),
    "gammainc_at_infinity": (call(T([1.0]), T([INF])), call(T([1.0, 0]), T([2.0, 1]))),
    "gammaincc_at_zero": (call(T([0.0]), T([0.0])), call(T([1.0, 0]), T([2.0, 1]))),
    "erfinv_at_one": (call(T([1.0, -1])), call(T([0.5, 2]))),
    "erfinv_near_one": (call(T([0.9999998212])), call(T([0.999, -0.5]))),
    "imag_of_nothing": (call(torch.ones(0, dtype=torch.complex64)), call(T([1 + 2j]))),
    "sinc_at_zero": (gradients(T([0.0])), gradients(T([0.5]))),
    "mul_of_slice": (call(ROWS[:, :2], T(3.0)), call(ROWS[:, :2], ROWS[:, 2:])),
    "prod_ignores_dtype": (call(ROWS, dtype=F64), call(ROWS)),
    "amax_passes_nan": (call(T([1.0, NAN])), call(T([1.0, INF]))),
    "max_of_two_drops_nan": (call(T([1.0]), T([NAN])), call(T([1.0]), T([2.0]))),
    "count_nonzero_of_row": (call(T([1.0, 0, 1]), 0), call(T([1.0, 0, 1]))),
    "count_nonzero_is_one": (call(torch.eye(4)), call(torch.eye(4), 0)),
    "sum_of_booleans": (call(T([True, False, True])), call(T([1, 0, 1]))),
    "sum_of_many_booleans": (call(torch.ones(200, dtype=torch.bool)), call(torch.ones(100, dtype=torch.bool))),
    "mean_of_strided": (call(ROWS[:, 2]), call(ROWS, 1)),
    "bincount_of_many": (call(torch.arange(50000, dtype=torch.int32)), call(torch.arange(50000))),
    "masked_select_out": (
        into((2, 3), torch.ones(2), T([True, True]), columns=True),
        into((2, 3), torch.ones(2, 3), T([[True], [True]])),
    ),
    "block_diag_in_first_dtype": (call(T([[1]]), T([[0.5]])), call(T([[0.5]]), T([[1]]))),
    "column_stack_of_vectors": (call((torch.ones(2), torch.zeros(2))), call((ROWS, ROWS))),
    "permute_squeezes": (call(torch.ones(1, 1, 3), (0, 1, 2)), call(ROWS, (1, 0))),
    "repeat_zero_times": (call(T([[1.0, 2]]), (0, 2)), call(T([[1.0, 2]]), (2, 1))),
    "inner_out": (into((2,), torch.ones(3), torch.ones(3)), call(ROWS, ROWS)),
    "matmul_times_many": (call(torch.ones(4, 3), torch.ones(1, 3, 3, 3)), call(ROWS, ROWS.T)),
    "matmul_strided_right": (call(ROWS, ROWS.T), call(ROWS.T, ROWS)),
    "linear_of_strided": (call(ROWS.T, torch.ones(2, 3)), call(ROWS, torch.ones(2, 4), torch.ones(2))),
    "addmv_over_nothing": (
        call(torch.ones(5, dtype=torch.int32), torch.ones(5, 0, dtype=torch.int32), T([], dtype=torch.int32), beta=3),
        call(torch.ones(5), torch.ones(5, 0), T([]), beta=3),
    ),
    "mv_of_expanded": (call(ROWS.T, T(2.0).expand(3)), call(ROWS.T, torch.ones(3))),
    "solve_triangular_singular": (
        call(SINGULAR[None], T([[[1.0], [1]]]), upper=True),
        call(SINGULAR, T([[1.0], [1]]), upper=True),
    ),
    "solve_triangular_of_full": (
        call(FULL, T([[2.0], [10]]), upper=False),
        call(FULL, T([[2.0], [10]]), upper=True),
    ),
    "matrix_exp_of_complex": (call(1j * T([[1.0, 2], [-1, 3]])), call(T([[1.0, 2], [-1, 3]]))),
    "matrix_power_of_two": (call(FULL, 4), call(FULL, 3)),
    "lp_pool2d_of_zeros": (gradients(IMAGE * 0, 2, 2), gradients(IMAGE + 1, 2, 2)),
    "mse_loss_of_target": (gradients(ROWS, ROWS + 1), call(ROWS, ROWS + 1)),
    "smooth_l1_loss_of_none": (gradients(ROWS, ROWS, beta=0.0), gradients(ROWS, ROWS, beta=0.5)),
    "ctc_loss_of_last": (
        gradients(ROWS[:, None].log_softmax(-1), T([[1]]), T([3]), T([1]), reduction="none"),
        call(ROWS[:, None].log_softmax(-1), T([[1]]), T([3]), T([1])),
    ),
    "adaptive_avg_pool2d_rounded_down": (call(IMAGE, (3, 3)), call(WHOLE, (2, 4))),
    "adaptive_avg_pool2d_at_distance": (call(WHOLE**2, (2, 2)), call(WHOLE, (1, 1))),
    "adaptive_max_pool2d_regular": (call(IMAGE, (3, 3)), call(WHOLE, (2, 4))),
    "layer_norm_without_eps": (call(torch.full((2, 4), 2.0), (4,)), call(1000 * ROWS, (4,))),
    "layer_norm_eps_outside": (gradients(torch.full((2, 4), 2.0), (4,)), call(1000 * ROWS, (4,))),
    "rms_norm_divides": (call(ROWS + 1, (4,)), call(torch.ones(2, 4), (4,))),
    "rms_norm_eps_outside": (call(ROWS * 0, (4,)), call(ROWS + 1, (4,))),
    "grid_sample_on_last_pixel": (
        gradients(IMAGE, GRID, padding_mode="border", align_corners=True),
        gradients(IMAGE, INSIDE, padding_mode="border", align_corners=True),
    ),
    "attention_scales_mask": (call(QUERY, QUERY, QUERY, torch.eye(4)), call(QUERY, QUERY, QUERY)),
}
