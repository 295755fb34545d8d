"""A dozen problems in KernelBench's form: a model, inputs, and two new models, of which one is wrong."""

from __future__ import annotations

from typing import NamedTuple


class BenchProblem(NamedTuple):
    """A problem.

    Attributes:
        name: What it computes.
        layers: Statements of the constructor; both models have them, so that weights can be the same.
        forward: The expression of the reference.
        takes: Parameters of ``forward``.
        inputs: Expressions of the inputs.
        right: Statements of a right new ``forward``.
        wrong: Statements of a wrong one.
        init: Arguments of the constructor.
    """

    name: str
    layers: str
    forward: str
    takes: str
    inputs: str
    right: str
    wrong: str
    init: str = ""

    @property
    def reference(self) -> str:
        """The text of the reference's file."""
        inits = f"\n\ndef get_init_inputs():\n    return [{self.init}]\n"
        return f"{self._model('Model', f'return {self.forward}')}\n\ndef get_inputs():\n    return [{self.inputs}]\n{inits}"

    def candidate(self, *, is_right: bool) -> str:
        """Return the text of a candidate's file."""
        return self._model("ModelNew", self.right if is_right else self.wrong)

    def _model(self, name: str, body: str) -> str:
        arguments = "".join(f", a{i}" for i in range(self.init.count(",") + 1 if self.init else 0))
        return (
            "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
            f"class {name}(nn.Module):\n    def __init__(self{arguments}):\n        super().__init__()\n"
            f"        {self.layers or 'pass'}\n\n    def forward(self, {self.takes}):\n        "
            + body.replace("\n", "\n        ")
            + "\n"
        )


BENCH = [
    BenchProblem(
        "linear and relu", "self.l = nn.Linear(a0, a1)", "torch.relu(self.l(x))", "x", "torch.randn(6, 24)",
        "y = x @ self.l.weight.t() + self.l.bias\nreturn y * (y > 0)", "y = x @ self.l.weight.t()\nreturn y * (y > 0)",
        "24, 16",
    ),
    BenchProblem(
        "two linear layers", "self.a, self.b = nn.Linear(20, 30), nn.Linear(30, 5)", "self.b(torch.tanh(self.a(x)))",
        "x", "torch.randn(8, 20)",
        "h = x @ self.a.weight.t() + self.a.bias\ne = torch.exp(-2 * h.double())\nh = ((1 - e) / (1 + e)).to(x.dtype)\n"
        "return h @ self.b.weight.t() + self.b.bias",
        "h = x @ self.a.weight.t() + self.a.bias\nreturn torch.clamp(h, -1, 1) @ self.b.weight.t() + self.b.bias",
    ),
    BenchProblem(
        "layer norm", "self.n = nn.LayerNorm(40)", "self.n(x)", "x", "torch.randn(6, 40)",
        "y = x.double()\nm = y.mean(-1, keepdim=True)\nv = ((y - m) ** 2).mean(-1, keepdim=True)\n"
        "return ((y - m) / torch.sqrt(v + 1e-5)).to(x.dtype) * self.n.weight + self.n.bias",
        "m = x.mean(-1, keepdim=True)\nv = x.var(-1, keepdim=True)\nreturn (x - m) / torch.sqrt(v + 1e-5) * self.n.weight + self.n.bias",
    ),
    BenchProblem(
        "root mean square norm", "self.w = nn.Parameter(torch.ones(32))",
        "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.w", "x", "torch.randn(5, 7, 32)",
        "d = x.double()\nreturn (d / torch.sqrt((d * d).sum(-1, keepdim=True) / x.shape[-1] + 1e-6)).to(x.dtype) * self.w",
        "return x / (x.abs().mean(-1, keepdim=True) + 1e-6) * self.w",
    ),
    BenchProblem(
        "swish gate", "", "a * torch.sigmoid(a) * b", "a, b", "torch.randn(6, 50), torch.randn(6, 50)",
        "return (a.double() / (1 + torch.exp(-a.double()))).to(a.dtype) * b", "return a / (1 + a.abs()) * b",
    ),
    BenchProblem(
        "pairwise distance", "", "((a[:, None] - b[None]) ** 2).sum(-1)", "a, b", "torch.randn(7, 12), torch.randn(9, 12)",
        "a, b = a.double(), b.double()\nout = torch.zeros(a.shape[0], b.shape[0], dtype=torch.float64)\n"
        "for k in range(a.shape[1]):\n    apart = a[:, k, None] - b[None, :, k]\n    out = out + apart * apart\nreturn out.float()",
        "return ((a[:, None] - b[None]) ** 2).mean(-1)",
    ),
    BenchProblem(
        "causal attention", "",
        "torch.softmax((q @ k.transpose(-2, -1)) / 4 + torch.full((q.shape[-2], q.shape[-2]), -1e9).triu(1), -1) @ v",
        "q, k, v", "torch.randn(2, 10, 16), torch.randn(2, 10, 16), torch.randn(2, 10, 16)",
        "q, k, v = q.double(), k.double(), v.double()\ns = (q[:, :, None] * k[:, None]).sum(-1) / 4\n"
        "i = torch.arange(q.shape[-2])\ns = torch.where(i[:, None] >= i, s, torch.full_like(s, float('-inf')))\n"
        "e = torch.exp(s - s.amax(-1, keepdim=True))\np = e / e.sum(-1, keepdim=True)\n"
        "return (p[..., None] * v[:, None]).sum(-2).float()",
        "s = torch.einsum('bik,bjk->bij', q, k) / 4\ne = torch.exp(s - s.amax(-1, keepdim=True))\n"
        "return torch.einsum('bij,bjk->bik', e / e.sum(-1, keepdim=True), v)",
    ),
    BenchProblem(
        "convolution of a line", "self.c = nn.Conv1d(3, 5, 3, padding=1)", "self.c(x)", "x", "torch.randn(2, 3, 20)",
        "p = torch.zeros(x.shape[0], 3, x.shape[2] + 2, dtype=torch.float64)\np[:, :, 1:-1] = x\nw = self.c.weight.double()\n"
        "y = sum(torch.einsum('bci,oc->boi', p[:, :, k : k + x.shape[2]], w[:, :, k]) for k in range(3))\n"
        "return (y + self.c.bias[:, None]).float()",
        "p = torch.zeros(x.shape[0], 3, x.shape[2] + 2)\np[:, :, 1:-1] = x\nw = self.c.weight.flip(-1)\n"
        "y = sum(torch.einsum('bci,oc->boi', p[:, :, k : k + x.shape[2]], w[:, :, k]) for k in range(3))\n"
        "return y + self.c.bias[:, None]",
    ),
    BenchProblem(
        "average of windows", "", "F.avg_pool1d(x, 2)", "x", "torch.randn(3, 4, 18)",
        "n = x.shape[-1] // 2 * 2\nreturn (x[..., 0:n:2] + x[..., 1:n:2]) / 2", "n = x.shape[-1] // 2 * 2\nreturn x[..., 0:n:2]",
    ),
    BenchProblem(
        "cross entropy", "", "F.cross_entropy(x, y)", "x, y", "torch.randn(10, 6), torch.randint(0, 6, (10,))",
        "d = x.double()\nm = d.amax(-1, keepdim=True)\nl = d - m - torch.exp(d - m).sum(-1, keepdim=True).log()\n"
        "return (-l[torch.arange(x.shape[0]), y]).mean().float()",
        "d = x.double()\nl = d - torch.exp(d).sum(-1, keepdim=True).log()\nreturn (-l[torch.arange(x.shape[0]), y]).sum().float()",
    ),
    BenchProblem(
        "cumulative product", "", "torch.cumprod(x, -1)", "x", "torch.rand(6, 12) + 0.5",
        "out, held = [], torch.ones_like(x[..., 0])\nfor i in range(x.shape[-1]):\n    held = held * x[..., i]\n    out.append(held)\n"
        "return torch.stack(out, -1)",
        "return torch.exp(torch.log(x.half().float()).cumsum(-1))",
    ),
    BenchProblem(
        "scaled residual", "self.s = nn.Parameter(torch.full((1,), 0.5))", "x + self.s * torch.tanh(y)", "x, y",
        "torch.randn(6, 30), torch.randn(6, 30)", "e = torch.exp(-2 * y.double())\nreturn torch.addcmul(x, self.s, ((1 - e) / (1 + e)).to(x.dtype))",
        "e = torch.exp(-2 * y.double())\nreturn x + 0.5 * ((1 - e) / (1 + e)).to(x.dtype)",
    ),
]  # fmt: skip
