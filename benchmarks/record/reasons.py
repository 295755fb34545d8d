"""Why the shipped suite misses a bug of record at 20 cases with the default seed."""

from __future__ import annotations

from typing import Final, Literal

#: ``reference_has_it``: torch still has the bug, so that the suite cannot call it. ``size_not_drawn``,
#: ``value_not_drawn``, ``dtype_not_drawn``, ``layout_not_drawn``, ``argument_not_drawn``: no case has such a tensor or
#: argument. ``operator_not_called``: no case calls the operator. ``ill_conditioned``: the comparison with a result in
#: float64 says that float32 can do no better. ``unexplained``: nobody has looked.
Reason = Literal[
    "reference_has_it", "size_not_drawn", "value_not_drawn", "dtype_not_drawn", "layout_not_drawn",
    "argument_not_drawn", "operator_not_called", "ill_conditioned", "unexplained",
]  # fmt: skip

REASONS: Final[dict[str, Reason]] = {
    "avg_pool3d_out": "reference_has_it",
    "cumsum_of_large": "size_not_drawn",
    "cross_entropy_of_large": "ill_conditioned",
    "nanmedian_of_negative_nan": "value_not_drawn",
    "cumprod_of_zero": "value_not_drawn",
    "pad_reflected_rows": "argument_not_drawn",
    "amax_over_all": "argument_not_drawn",
    "sort_of_columns": "size_not_drawn",
    "sort_of_many": "size_not_drawn",
    "triu_batch_of_one": "size_not_drawn",
    "amax_of_nothing": "size_not_drawn",
    "log_softmax_of_large": "ill_conditioned",
    "clamp_to_nan": "value_not_drawn",
    "logcumsumexp_of_infinities": "value_not_drawn",
    "inner_out": "argument_not_drawn",
    "matmul_times_many": "size_not_drawn",
    "addmv_over_nothing": "size_not_drawn",
    "mv_of_expanded": "layout_not_drawn",
    "solve_triangular_singular": "size_not_drawn",
    "matrix_exp_of_complex": "operator_not_called",
    "lp_pool2d_of_zeros": "value_not_drawn",
    "smooth_l1_loss_of_none": "argument_not_drawn",
    "adaptive_avg_pool2d_at_distance": "size_not_drawn",
    "grid_sample_on_last_pixel": "value_not_drawn",
    "sinh_in_blocks": "value_not_drawn",
    "polygamma_of_negative": "value_not_drawn",
    "sin_of_large": "ill_conditioned",
    "atan2_of_two_dtypes": "dtype_not_drawn",
    "acosh_of_large": "dtype_not_drawn",
    "acosh_left_of_zero": "dtype_not_drawn",
    "acos_of_large": "dtype_not_drawn",
    "relu6_of_large": "value_not_drawn",
    "rsqrt_of_integers": "dtype_not_drawn",
    "isclose_to_infinity": "value_not_drawn",
    "gammainc_at_infinity": "value_not_drawn",
    "gammaincc_at_zero": "value_not_drawn",
    "erfinv_at_one": "value_not_drawn",
    "erfinv_near_one": "value_not_drawn",
    "max_of_two_drops_nan": "argument_not_drawn",
    "sum_of_many_booleans": "size_not_drawn",
    "bincount_of_many": "size_not_drawn",
    "masked_select_out": "argument_not_drawn",
    "block_diag_in_first_dtype": "dtype_not_drawn",
    "column_stack_of_vectors": "size_not_drawn",
}


def reason_of(name: str) -> Reason:
    """Return why a bug is missed, by the name of its kernel."""
    return REASONS.get(name, "unexplained")
