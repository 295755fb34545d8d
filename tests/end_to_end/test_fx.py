"""`backend: fx` from the configuration to the repro: a pass that is right, one that is wrong, one that does nothing."""

from __future__ import annotations

from pathlib import Path

from tests.projects import Project, outcomes

PASSES = """
import torch
from torch.nn.utils.fusion import fuse_conv_bn_eval


def fuse(module):
    for node in list(module.graph.nodes):
        if node.op == "call_module" and isinstance(module.get_submodule(node.target), torch.nn.BatchNorm2d):
            before = node.args[0]
            fused = fuse_conv_bn_eval(module.get_submodule(before.target), module.get_submodule(node.target))
            module.add_module(before.target, fused)
            node.replace_all_uses_with(before)
            module.graph.erase_node(node)
    module.recompile()
    return module


def fuse_wrongly(module):
    module = fuse(module)
    for node in module.graph.nodes:
        if node.op == "call_module":
            with torch.no_grad():
                module.get_submodule(node.target).bias += 0.5
    return module


def idle(module):
    return module
"""
BODY = """
@autotest(n=4)
def block():
    convolution, norm = torch.nn.Conv2d(2, 3, 3).eval(), torch.nn.BatchNorm2d(3).eval()
    return norm(convolution(random_tensor(4, 2, 2, 5, 6))).relu()
"""


def project_in(folder: Path) -> Project:
    project = Project(folder)
    names = ("fuse", "fuse_wrongly", "idle")
    project.configure(candidates=[{"name": name, "backend": "fx", "transform": f"mypasses.{name}"} for name in names])
    project.write("mypasses.py", PASSES)
    project.tests(BODY)
    return project


def test_run__passes__are_aligned_misaligned_and_untested(tmp_path: Path):
    project = project_in(tmp_path)
    done = project.run()
    report = project.report()
    assert outcomes(report) == {
        ("block", "fuse"): "aligned", ("block", "fuse_wrongly"): "misaligned", ("block", "idle"): "unsupported",
    }, done.said  # fmt: skip
    assert done.status == 1
    assert "mypasses.idle left the graph unchanged, so nothing of it was tested" in done.said
    (finding,) = report["findings"]
    assert finding["repro_verified"] is True, finding
    repro = project.repro(finding, "autotest-report", tmp_path)
    assert (repro.status, "misaligned: value of" in repro.out) == (1, True), repro.said
    (tmp_path / "mypasses.py").write_text(PASSES.replace("bias += 0.5", "bias += 0.0"), encoding="utf-8")
    assert project.repro(finding, "autotest-report", tmp_path).status == 0


ARITY = """
def more(module):
    (output,) = [node for node in module.graph.nodes if node.op == "output"]
    first = output.args[0][0] if isinstance(output.args[0], (tuple, list)) else output.args[0]
    output.args = ((first, first, first),)
    module.recompile()
    return module


def fewer(module):
    (output,) = [node for node in module.graph.nodes if node.op == "output"]
    output.args = ((output.args[0][0],),)
    module.recompile()
    return module
"""


def test_run__pass_that_returns_another_number_of_values__is_misaligned(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(
        candidates=[{"name": name, "backend": "fx", "transform": f"mypasses.{name}"} for name in ("more", "fewer")]
    )
    project.write("mypasses.py", ARITY)
    project.tests("@autotest(n=2)\ndef two():\n    x = random_tensor(ndim=1)\n    return x.exp(), x.sin()\n")
    done = project.run()
    report = project.report()
    assert (done.status, report["broken"]) == (1, []), done.said
    assert outcomes(report) == {("two", "more"): "misaligned", ("two", "fewer"): "misaligned"}
    (finding,) = [item for item in report["findings"] if item["candidate"] == "more"]
    assert finding["detail"] == "ArityError: the graph returns 3 values, the body 1"  # shrunk to one of them


MODEL = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU()

    def forward(self, x):
        return self.act(self.norm(self.conv(x)))


net = nn.Sequential(Block(), nn.Conv2d(3, 2, 1)).eval()
net[0].norm.running_var.fill_(1e-3)
net[0].norm.running_mean.fill_(-1.0)
layers = nn.ModuleDict({
    "memory": nn.LSTM(3, 4, batch_first=True), "attention": nn.MultiheadAttention(4, 2, bias=False, batch_first=True),
})
"""
OVER_MODULES = """
import torch


def wrong_eps(module, example_inputs):
    assert example_inputs[0].ndim == 4
    norm = module.get_submodule("0.norm")
    norm.eps = 1e-2
    return module


def wrong_layers(module):
    for part in list(module.modules()):
        if isinstance(part, (torch.nn.LSTM, torch.nn.MultiheadAttention)):
            with torch.no_grad():
                next(part.parameters()).mul_(1.5)
    return module
"""


def test_run__pass_over_the_modules_of_the_author__has_a_repro_that_shows_it(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(candidates=[{"name": "wrong", "backend": "fx", "transform": "mypasses.wrong_eps"}])
    project.write("mypasses.py", OVER_MODULES)
    project.write("model.py", MODEL)
    body = (
        "from model import net\n\n@autotest(n=2)\ndef model():\n    return net(random_tensor(4, 2, 2, 5, 6)).mean()\n"
    )
    project.tests(body)
    done = project.run()
    (finding,) = project.report()["findings"]
    assert (finding["operator"], finding["kind"], finding["repro_verified"]) == (
        "torch.nn.functional.batch_norm", "value", True,
    ), done.said  # fmt: skip
    script = (tmp_path / "autotest-report" / finding["repro"]).read_text("utf-8")
    assert "torch.nn.BatchNorm2d(num_features=3, eps=1e-05" in script


def test_run__pass_over_layers_of_several_steps__has_repros_that_show_it(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(candidates=[{"name": "wrong", "backend": "fx", "transform": "mypasses.wrong_layers"}])
    project.write("mypasses.py", OVER_MODULES)
    project.write("model.py", MODEL)
    project.tests(
        "from model import layers\n\n@autotest(n=2)\ndef memory():\n"
        "    output, (h, c) = layers['memory'](random_tensor(3, 2, 5, 3))\n    return output.sum() + (h * c).sum()\n\n"
        "@autotest(n=2)\ndef attention():\n    x = random_tensor(3, 2, 5, 4)\n"
        "    return layers['attention'](x, x, value=x, need_weights=False)[0].tanh()\n"
    )
    done = project.run()
    findings = {finding["operator"]: finding for finding in project.report()["findings"]}
    assert {name: finding["repro_verified"] for name, finding in findings.items()} == {
        "torch.lstm": True, "torch.nn.functional.multi_head_attention_forward": True,
    }, done.said  # fmt: skip
    scripts = [(tmp_path / "autotest-report" / item["repro"]).read_text("utf-8") for item in findings.values()]
    assert any("torch.nn.LSTM(input_size=3, hidden_size=4, num_layers=1" in script for script in scripts)
