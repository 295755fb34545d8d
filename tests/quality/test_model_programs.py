"""Programs of the kinds that people write, with plain modules and optimizers: right kernels stay green, and a faulty one is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.projects import Project, outcomes

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.heavy
HERE = Path(__file__).parent
#: By program: an operator that no other program calls in this way, and the kernel with a fault in it.
FAULTS = {
    "binarised_network": ("torch.nn.functional.huber_loss", "huber_ignores_delta"),
    "contrastive_learning": ("torch.nn.functional.normalize", "normalize_other_dim"),
    "ctc_speech": ("torch.nn.functional.glu", "glu_swapped"),
    "ddpm_sampling": ("torch.nn.functional.silu", "silu_of_gelu"),
    "ddpm_training": ("torch.rsqrt", "rsqrt_of_one_newton_step"),
    "detection_loss": ("torch.nn.functional.binary_cross_entropy_with_logits", "bce_ignores_pos_weight"),
    "dice_segmentation": ("torch.nn.functional.cross_entropy", "cross_entropy_ignores_label_smoothing"),
    "dqn_update": ("torch.nn.functional.smooth_l1_loss", "smooth_l1_ignores_beta"),
    "ema_distillation": ("torch.nn.functional.kl_div", "kl_div_mean"),
    "gan_step": ("torch.nn.functional.prelu", "prelu_of_one_slope"),
    "gpt_nucleus_decoding": ("torch.sort", "sort_ascending"),
    "gpt_training": ("torch.nn.functional.gelu", "gelu_ignores_approximate"),
    "graph_attention": ("torch.index_add", "index_add_loses_duplicates"),
    "graph_convolution": ("torch.scatter_add", "scatter_add_loses_duplicates"),
    "int8_inference": ("torch.round", "round_to_zero"),
    "lstm_truncated_bptt": ("torch.lstm", "lstm_ignores_state"),
    "mixture_of_experts": ("torch.nn.functional.mish", "mish_without_tail"),
    "neural_radiance_field": ("torch.cumprod", "cumprod_without_carry"),
    "non_maximum_suppression": ("torch.argsort", "argsort_ascending"),
    "ppo_update": ("torch.logsumexp", "logsumexp_without_tail"),
    "quantisation_aware_training": ("torch.fake_quantize_per_tensor_affine", "fake_quantize_floor"),
    "recommender": ("torch.nn.functional.l1_loss", "l1_rounded_at_zero"),
    "resnet_classification": ("torch.nn.functional.adaptive_avg_pool2d", "pool_without_last_row"),
    "seq2seq_translation": ("torch.bmm", "bmm_in_bfloat16"),
    "standardised_covariance": ("torch.std", "std_unbiased"),
    "temporal_convolution": ("torch.nn.functional.pad", "pad_wrong_side"),
    "transformer_text_classifier": ("torch.nn.functional.multi_head_attention_forward", "attention_ignores_padding"),
    "unet_segmentation": ("torch.nn.functional.interpolate", "interpolate_ignores_align_corners"),
    "variational_autoencoder": ("torch.nn.functional.binary_cross_entropy", "bce_ignores_reduction"),
    "wgan_gradient_penalty": ("torch.nn.functional.softplus", "softplus_ignores_beta"),
}


#: Programs that ``torch.compile`` is asked: each case compiles what it records, so a few of each kind, and none with an optimizer.
COMPILED = (
    "contrastive_learning",
    "dice_segmentation",
    "graph_attention",
    "int8_inference",
    "mixture_of_experts",
    "neural_radiance_field",
    "quantisation_aware_training",
    "standardised_covariance",
)


def programs(folder: Path, **candidate: Any) -> Project:
    project = Project(folder, greatest_s=1800)
    project.configure(candidates=[{"name": "kernels", **candidate}])
    project.write("autotests/autotest_models.py", (HERE / "model_programs.py").read_text("utf-8"))
    return project


def substituted(folder: Path, functions: Mapping[str, str], kernels: str) -> Project:
    """Return a project of all programs in which functions of a module answer operators."""
    replace = {operator: f"kernels.{name}" for operator, name in functions.items()}
    project = programs(folder, backend="substitute", replace=replace)
    project.write("kernels.py", kernels)
    return project


def test_substitute__programs_with_kernels_that_call_torch__are_all_aligned(tmp_path):
    operators = {**dict(FAULTS.values()), "torch.quantize_per_tensor": "quantize_per_tensor"}
    functions = [f"def {name}(*a, **k):\n    return {operator}(*a, **k)\n" for operator, name in operators.items()]
    project = substituted(tmp_path, operators, "import torch\n\n" + "\n".join(functions))

    done = project.run("--cases", "2")

    found = outcomes(project.report())
    assert (done.status, set(found.values()), len(found)) == (0, {"aligned"}, len(operators))


def test_substitute__programs_with_a_faulty_kernel_each__has_a_finding_of_the_operator(tmp_path):
    project = substituted(tmp_path, dict(FAULTS.values()), (HERE / "model_kernels.py").read_text("utf-8"))

    project.run("--cases", "1")

    found = {item["test"].rpartition("::")[2]: item["operator"] for item in project.report()["findings"]}
    assert found == {program: operator for program, (operator, _) in FAULTS.items()}


def test_compile__programs_without_an_optimizer__are_all_aligned(tmp_path):
    project = programs(tmp_path, backend="torch.compile", options={"backend": "aot_eager"})

    done = project.run("--cases", "1", *(f"autotests/autotest_models.py::{program}" for program in COMPILED))

    assert (done.status, outcomes(project.report())) == (0, {(program, "kernels"): "aligned" for program in COMPILED})
