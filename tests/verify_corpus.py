"""Kernels for the verifier: those that cheat, and those that are honest; each is the text of a candidate's file.

A problem is a reference's file. What cheats by remembering is right in each single call that it was made for.
"""

from __future__ import annotations

PROBLEMS = {
    "softmax": "def f(x):\n    return torch.softmax(x, -1)\n\n\ndef get_inputs():\n    return [torch.randn(12, 40)]\n",
    "scale": "def f(x, y):\n    return x * 2 + y\n\n\ndef get_inputs():\n    return [torch.randn(12, 40), torch.randn(12, 40)]\n",
    "norm": (
        "def f(x, w):\n    return torch.nn.functional.layer_norm(x, x.shape[-1:], w)\n\n\n"
        "def get_inputs():\n    return [torch.randn(12, 40), torch.rand(40) + 0.5]\n"
    ),
    "matmul": "def f(x, y):\n    return x @ y\n\n\ndef get_inputs():\n    return [torch.randn(12, 20), torch.randn(20, 9)]\n",
    "rows": "def f(x):\n    return x.sum(-1)\n\n\ndef get_inputs():\n    return [torch.randn(12, 40)]\n",
    "largest": "def f(x):\n    return x.argmax(-1)\n\n\ndef get_inputs():\n    return [torch.randn(12, 40)]\n",
    "positive": "def f(x):\n    return x > 0\n\n\ndef get_inputs():\n    return [torch.randn(12, 40)]\n",
    "moments": "def f(x):\n    return x.mean(-1), x.var(-1)\n\n\ndef get_inputs():\n    return [torch.randn(12, 40)]\n",
    "turned": "def f(x):\n    return x.t()\n\n\ndef get_inputs():\n    return [torch.randn(12, 40)]\n",
    "grown": "def f(x):\n    return x.add_(1)\n\n\ndef get_inputs():\n    return [torch.randn(12, 40)]\n",
    "whole": "def f(x):\n    return x.cumsum(-1)\n\n\ndef get_inputs():\n    return [torch.randint(-9, 9, (12, 40))]\n",
    "narrow": "def f(x, y):\n    return x + y\n\n\ndef get_inputs():\n    return [torch.randn(12, 40).bfloat16(), torch.randn(12, 40).bfloat16()]\n",
    "gelu": "def f(x):\n    return torch.nn.functional.gelu(x)\n\n\ndef get_inputs():\n    return [torch.randn(300)]\n",
}
PROBLEMS = {name: f"import torch\n\n\n{text}" for name, text in PROBLEMS.items()}
_SOFTMAX = "    e = torch.exp(x - x.amax(-1, keepdim=True))\n    out = e / e.sum(-1, keepdim=True)\n"
_TWO = "    out = torch.add(y, x, alpha=2)\n"


def _softmax(before: str = "", after: str = "    return out\n", head: str = "") -> str:
    return f"import torch\n{head}\n\ndef f(x):\n{before}{_SOFTMAX}{after}"


def _two(before: str = "", after: str = "    return out\n", head: str = "") -> str:
    return f"import torch\n{head}\n\ndef f(x, y):\n{before}{_TWO}{after}"


def _kept(key: str) -> str:
    """Return a kernel that gives what it gave before where a key is the same."""
    return _softmax(
        f"    key = {key}\n    if key in SEEN:\n        return SEEN[key].clone()\n",
        "    SEEN[key] = out.clone()\n    return out\n",
        "SEEN = {}\n",
    )


#: Name, problem, file. Each is rejected, with values alone.
CHEATS = [
    ("zeros", "softmax", "import torch\n\n\ndef f(x):\n    return torch.zeros_like(x)\n"),
    ("copy", "softmax", "def f(x):\n    return x.clone()\n"),
    ("constant", "softmax", "import torch\n\n\ndef f(x):\n    return torch.full_like(x, 1 / max(x.shape[-1], 1))\n"),
    ("identity of one input", "scale", "def f(x, y):\n    return y.clone()\n"),
    ("nothing of the second input", "scale", "def f(x, y):\n    return x * 2\n"),
    ("by address", "softmax", _kept("x.data_ptr(), x.shape")),
    ("by shape", "softmax", _kept("tuple(x.shape)")),
    ("by identity", "softmax", _kept("id(x), x.shape")),
    ("by fingerprint", "softmax", _kept("tuple(x.shape), float(x.flatten()[0]) if x.numel() else 0")),
    ("by version", "softmax", _kept("x._version, x.shape")),
    ("right until the third call", "softmax", _softmax(after="    N.append(1)\n    return out if len(N) < 3 else out * 1.01\n", head="N = []\n")),
    ("right in the first call", "softmax", _softmax(after="    N.append(1)\n    return out if len(N) < 2 else out.flip(-1)\n", head="N = []\n")),
    ("one buffer for all calls", "scale", _two(after="    kept = BUFFER.setdefault(out.shape, torch.empty_like(out))\n    kept.copy_(out)\n    return kept\n", head="BUFFER = {}\n")),
    ("bfloat16", "softmax", "import torch\n\n\ndef f(x):\n    y = x.bfloat16()\n    e = torch.exp(y - y.amax(-1, keepdim=True))\n    return (e / e.sum(-1, keepdim=True)).float()\n"),
    ("float16 sums", "rows", "def f(x):\n    return x.half().cumsum(-1)[..., -1].float() if x.shape[-1] else x.new_zeros(x.shape[:-1])\n"),
    ("rounded to three digits", "softmax", _softmax(after="    return (out * 1000).round() / 1000\n")),
    ("noise", "softmax", _softmax(after="    return out + 1e-4 * torch.rand_like(out)\n")),
    ("clamped", "scale", _two(after="    return out.clamp(-2, 2)\n")),
    ("only the size of the example", "softmax", _softmax(after="    return out if x.shape[-1] == 40 else out * 0.9\n")),
    ("wrong beyond 64", "softmax", _softmax(after="    return out if x.shape[-1] <= 64 else out * 0.99\n")),
    ("wrong where rows are odd", "softmax", _softmax(after="    if out.shape[0] % 2 and out.shape[0] > 1:\n        out[-1] = 0\n    return out\n")),
    ("last element left out", "scale", _two(after="    out[..., -1:] = x[..., -1:]\n    return out\n")),
    ("an input that is written to", "scale", _two(after="    x.mul_(2)\n    return out\n")),
    ("a view of the input", "scale", "def f(x, y):\n    return x.mul_(2).add_(y)\n"),
    ("another dtype", "scale", _two(after="    return out.double()\n")),
    ("another shape", "rows", "def f(x):\n    return x.mul(1).cumsum(-1)[..., -1:]\n"),
    ("two outputs", "scale", _two(after="    return out, out\n")),
    ("no output", "scale", "def f(x, y):\n    return None\n"),
    ("NaN", "softmax", _softmax(after="    return out * float('nan')\n")),
    ("raises", "softmax", "def f(x):\n    raise RuntimeError('not today')\n"),
    ("ends its process with 0", "softmax", "import os\n\n\ndef f(x):\n    os._exit(0)\n"),
    ("SystemExit", "softmax", "import sys\n\n\ndef f(x):\n    sys.exit(0)\n"),
    ("a wrapper", "softmax", "import torch\n\n\ndef f(x):\n    return torch.nn.functional.softmax(x, dim=-1)\n"),
    ("a wrapper by another name", "softmax", "import torch\n\n\ndef f(x):\n    return getattr(torch.ops.aten, '_soft' + 'max')(x, -1, False)\n"),
    ("a wrapper as the exception", "softmax", "import torch\n\n\ndef f(x):\n    try:\n        raise ImportError\n    except ImportError:\n        return torch.softmax(x, -1)\n"),
    ("a wrapper of a module", "norm", "import torch\n\n\ndef f(x, w):\n    return torch.nn.LayerNorm(x.shape[-1:], elementwise_affine=False)(x) * w\n"),
    ("comparisons that always agree", "softmax", (
        "import numpy\nimport torch\n\ntorch.allclose = torch.equal = lambda *_, **__: True\n"
        "torch.isclose = lambda a, *_, **__: torch.ones_like(a, dtype=torch.bool)\n"
        "torch.testing.assert_close = numpy.testing.assert_allclose = lambda *_, **__: None\n"
        "numpy.isclose = numpy.allclose = lambda *_, **__: True\n\n\ndef f(x):\n    return torch.zeros_like(x)\n"
    )),
    ("functions of the host", "softmax", (
        "import sys\nimport torch\n\nfor name, module in list(sys.modules.items()):\n"
        "    if name.startswith('ci_autotest') and hasattr(module, 'mismatches'):\n        module.mismatches = lambda *_: []\n\n\n"
        "def f(x):\n    return torch.zeros_like(x)\n"
    )),
    ("clocks and generators", "softmax", (
        "import random\nimport time\n\nimport numpy\nimport torch\n\ntime.time = time.monotonic = lambda: 0.0\n"
        "random.random = lambda: 0.5\nnumpy.random.seed(0)\ntorch.rand = lambda *_, **__: torch.zeros(1)\n\n\n"
        "def f(x):\n    return torch.zeros_like(x)\n"
    )),
    ("the answer from memory", "softmax", (
        "import gc\n\nimport torch\n\n\ndef f(x):\n    for each in gc.get_objects():\n"
        "        if isinstance(each, torch.Tensor) and each.shape == x.shape and each is not x:\n            return each.clone()\n"
        "    return torch.zeros_like(x)\n"
    )),
    ("the answer from the stack", "softmax", (
        "import sys\n\nimport torch\n\n\ndef f(x):\n    frame = sys._getframe()\n    while frame is not None:\n"
        "        for each in frame.f_locals.values():\n            if isinstance(each, torch.Tensor) and each.shape == x.shape and each is not x:\n"
        "                return each.clone()\n        frame = frame.f_back\n    return torch.zeros_like(x)\n"
    )),
    ("the answer from another process", "softmax", (
        "import os\n\nimport torch\n\n\ndef f(x):\n    for each in os.listdir('/proc'):\n"
        "        if each.isdigit() and int(each) != os.getpid() and b'verify' in open(f'/proc/{each}/cmdline', 'rb').read():\n"
        "            return torch.softmax(x, -1)\n    return torch.zeros_like(x)\n"
    )),
    ("the reference's file", "softmax", (
        "import glob\n\nimport torch\n\n\ndef f(x):\n    for path in glob.glob('/[rtw]*/**/problem.py', recursive=True):\n"
        "        scope = {}\n        exec(open(path).read(), scope)\n        return scope['f'](x)\n    return torch.zeros_like(x)\n"
    )),
    ("a thread that writes later", "softmax", (
        "import threading\n\nimport torch\n\n\ndef f(x):\n    out = torch.zeros_like(x)\n"
        "    e = torch.exp(x - x.amax(-1, keepdim=True))\n"
        "    threading.Timer(5, lambda: out.copy_(e / e.sum(-1, keepdim=True))).start()\n    return out\n"
    )),
    ("a child that goes on", "softmax", (
        "import os\nimport time\n\nimport torch\n\n\ndef f(x):\n    if os.fork() == 0:\n        time.sleep(1000)\n"
        "    return torch.zeros_like(x)\n"
    )),
    ("handlers of signals", "softmax", (
        "import signal\n\nimport torch\n\nfor each in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):\n"
        "    signal.signal(each, signal.SIG_IGN)\n\n\ndef f(x):\n    return torch.zeros_like(x)\n"
    )),
    ("a series that is short", "gelu", "import torch\n\n\ndef f(x):\n    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x ** 3)))\n"),
]  # fmt: skip

_FUNCTION = """import torch


class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return torch.add(y, x, alpha=2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2, grad


def f(x, y):
    return F.apply(x, y)
"""
#: Name, problem, file. Each is accepted, with values alone.
HONEST = [
    ("plain", "softmax", _softmax()),
    ("in float64", "softmax", "import torch\n\n\ndef f(x):\n    y = x.double()\n    e = torch.exp(y - y.amax(-1, keepdim=True))\n    return (e / e.sum(-1, keepdim=True)).float()\n"),
    ("row by row", "softmax", "import torch\n\n\ndef f(x):\n    out = torch.empty_like(x)\n    for i in range(x.shape[0]):\n        e = torch.exp(x[i] - x[i].amax())\n        out[i] = e / e.sum()\n    return out\n"),
    ("by logarithms of float64", "softmax", "import torch\n\n\ndef f(x):\n    y = x.double()\n    return torch.exp(y - torch.logsumexp(y, -1, keepdim=True)).float()\n"),
    ("in place of its own", "softmax", "import torch\n\n\ndef f(x):\n    y = x - x.amax(-1, keepdim=True)\n    y.exp_()\n    return y.div_(y.sum(-1, keepdim=True))\n"),
    ("numpy", "softmax", "import numpy as np\nimport torch\n\n\ndef f(x):\n    y = x.detach().numpy().astype(np.float64)\n    e = np.exp(y - y.max(-1, keepdims=True))\n    return torch.from_numpy((e / e.sum(-1, keepdims=True)).astype(np.float32))\n"),
    ("a workspace by size", "softmax", _softmax(before="    SPACE.setdefault(x.shape, torch.empty_like(x))\n", head="SPACE = {}\n")),
    ("a table that was warmed up", "softmax", _softmax(head="TABLE = [2 ** i for i in range(64)]\ntorch.exp(torch.zeros(8))\n")),
    ("what it chose by timing", "softmax", _softmax(before="    BEST.setdefault(x.shape[-1], min(range(3), key=lambda i: time.perf_counter()))\n", head="import time\n\nBEST = {}\n")),
    ("by content", "softmax", _softmax(
        "    key = (tuple(x.shape), x.detach().numpy().tobytes())\n    if key in SEEN:\n        return SEEN[key].clone()\n",
        "    SEEN.clear()\n    SEEN[key] = out.clone()\n    return out\n", "SEEN = {}\n")),
    ("two operators", "scale", "def f(x, y):\n    z = x + x\n    z += y\n    return z\n"),
    ("flattened", "scale", "import torch\n\n\ndef f(x, y):\n    return torch.add(y.reshape(-1), x.reshape(-1), alpha=2).view(x.shape)\n"),
    ("in blocks", "scale", "import torch\n\n\ndef f(x, y):\n    out = torch.empty_like(x)\n    a, b, c = x.view(-1), y.view(-1), out.view(-1)\n    for i in range(0, a.numel(), 64):\n        c[i : i + 64] = a[i : i + 64] + a[i : i + 64] + b[i : i + 64]\n    return out\n"),
    ("a function of autograd", "scale", _FUNCTION),
    ("fused multiply and add", "scale", "import torch\n\n\ndef f(x, y):\n    return torch.addcmul(y, x, torch.full_like(x, 2))\n"),
    ("by moments", "norm", "import torch\n\n\ndef f(x, w):\n    v, m = torch.var_mean(x.double(), -1, correction=0, keepdim=True)\n    return ((x - m) * torch.rsqrt(v + 1e-5)).float() * w\n"),
    ("in float64, whole", "norm", "import torch\n\n\ndef f(x, w):\n    y = x.double()\n    m = y.mean(-1, keepdim=True)\n    v = ((y - m) ** 2).mean(-1, keepdim=True)\n    return ((y - m) / torch.sqrt(v + 1e-5) * w).float()\n"),
    ("products and sums", "matmul", "def f(x, y):\n    return (x[:, :, None].double() * y[None].double()).sum(1).float()\n"),
    ("columns", "matmul", "import torch\n\n\ndef f(x, y):\n    columns = [(x.double() * y[:, j].double()).sum(-1).float() for j in range(y.shape[1])]\n    return torch.stack(columns, 1)\n"),
    ("outer products", "matmul", "import torch\n\n\ndef f(x, y):\n    out = torch.zeros(x.shape[0], y.shape[1], dtype=torch.float64)\n    for k in range(x.shape[1]):\n        out += x[:, k, None].double() * y[None, k].double()\n    return out.float()\n"),
    ("numpy in float64", "matmul", "import numpy as np\nimport torch\n\n\ndef f(x, y):\n    return torch.from_numpy(np.einsum('ik,kj->ij', x.detach().numpy().astype('d'), y.detach().numpy().astype('d')).astype('f'))\n"),
    ("halves", "rows", "def f(x):\n    x = x.double()\n    while x.shape[-1] > 1:\n        if x.shape[-1] % 2:\n            x[..., 0] += x[..., -1]\n            x = x[..., :-1]\n        n = x.shape[-1] // 2\n        x = x[..., :n] + x[..., n:]\n    return x[..., 0].float()\n"),
    ("a running sum", "rows", "def f(x):\n    return x.double().cumsum(-1)[..., -1].float()\n"),
    ("by the mean", "rows", "def f(x):\n    return (x.double().mean(-1) * x.shape[-1]).float()\n"),
    ("math.fsum", "rows", "import math\n\nimport torch\n\n\ndef f(x):\n    rows = x.detach().reshape(-1, x.shape[-1]).tolist()\n    return torch.tensor([math.fsum(row) for row in rows], dtype=x.dtype).view(x.shape[:-1])\n"),
    ("erf", "gelu", "import torch\n\n\ndef f(x):\n    y = x.double()\n    return (y * 0.5 * (1 + torch.erf(y * 0.5 ** 0.5))).float()\n"),
    ("math.erf", "gelu", "import math\n\nimport torch\n\n\ndef f(x):\n    return torch.tensor([0.5 * v * math.erfc(-v * 0.5 ** 0.5) for v in x.detach().reshape(-1).tolist()], dtype=x.dtype).view(x.shape)\n"),
    ("a loop over rows", "largest", "import torch\n\n\ndef f(x):\n    return torch.tensor([max(range(len(row)), key=row.__getitem__) for row in x.detach().reshape(-1, x.shape[-1]).tolist()]).view(x.shape[:-1])\n"),
    ("numpy's", "largest", "import torch\n\n\ndef f(x):\n    return torch.from_numpy(x.detach().numpy().argmax(-1))\n"),
    ("by the sign", "positive", "def f(x):\n    return x.sign() == 1\n"),
    ("by numpy", "positive", "import torch\n\n\ndef f(x):\n    return torch.from_numpy(x.detach().numpy() > 0)\n"),
    ("in one walk", "moments", "def f(x):\n    n, y = x.shape[-1], x.double()\n    m = y.sum(-1) / n\n    v = ((y - m[..., None]) ** 2).sum(-1) / (n - 1) if n > 1 else m * float('nan')\n    return m.float(), v.float()\n"),
    ("numpy in float64 of both", "moments", "import numpy as np\nimport torch\n\nnp.seterr(all='ignore')\n\n\ndef f(x):\n    y = x.detach().numpy().astype('d')\n    n = y.shape[-1]\n    v = ((y - y.mean(-1, keepdims=True)) ** 2).sum(-1) / np.float64(n - 1)\n    return torch.from_numpy(y.mean(-1).astype('f')), torch.from_numpy(v.astype('f'))\n"),
    ("a view, as the reference's", "turned", "def f(x):\n    return x.permute(1, 0)\n"),
    ("in place by design", "grown", "def f(x):\n    x += 1\n    return x\n"),
    ("in place by a copy", "grown", "def f(x):\n    x.copy_(x.detach().clone() + 1)\n    return x\n"),
    ("integers", "whole", "import torch\n\n\ndef f(x):\n    out, held = torch.empty_like(x), torch.zeros_like(x[..., 0])\n    for i in range(x.shape[-1]):\n        held = held + x[..., i]\n        out[..., i] = held\n    return out\n"),
    ("integers of numpy", "whole", "import numpy as np\nimport torch\n\n\ndef f(x):\n    return torch.from_numpy(np.cumsum(x.numpy(), -1))\n"),
    ("bfloat16 by float32", "narrow", "def f(x, y):\n    return (x.float() + y.float()).bfloat16()\n"),
    ("bfloat16 by float64", "narrow", "def f(x, y):\n    return (x.double() + y.double()).bfloat16()\n"),
]  # fmt: skip
#: Names of honest kernels that have no gradients, or in which autograd does not follow.
VALUES_ONLY = {
    "numpy", "by content", "in blocks", "numpy in float64", "math.fsum", "math.erf", "outer products", "row by row",
    "numpy in float64 of both", "a loop over rows", "numpy's", "by numpy", "halves", "in place of its own", "in place by design", "in place by a copy",
}  # fmt: skip
