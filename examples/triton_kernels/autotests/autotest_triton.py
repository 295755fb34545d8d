"""What the kernels take: rows, vectors and matrices of float32."""

from references import rope

from ci_autotest import autotest, random, random_tensor, torch


@autotest()
def softmax():
    return torch.softmax(random_tensor(2, dim0=random(1, 5), dim1=random(1, 40)), dim=1)


@autotest()
def layer_norm():
    columns = random(1, 40).to(int)
    x = random_tensor(2, dim0=random(1, 5), dim1=columns)
    weight, bias = random_tensor(1, dim0=columns), random_tensor(1, dim0=columns)
    return torch.nn.functional.layer_norm(x, (columns,), weight, bias)


@autotest()
def product():
    inner = random(1, 40).to(int)
    return torch.matmul(
        random_tensor(2, dim0=random(1, 20), dim1=inner), random_tensor(2, dim0=inner, dim1=random(1, 20))
    )


@autotest()
def rotary_embedding():
    tokens, half = random(1, 6).to(int), random(1, 20).to(int)
    x = random_tensor(3, dim0=random(1, 4), dim1=tokens, dim2=half * 2)
    return rope(x, random_tensor(2, dim0=tokens, dim1=half), random_tensor(2, dim0=tokens, dim1=half))
