from ci_autotest import autotest, random_tensor, torch


@autotest(n=3, profiles=())
def perceptron():
    layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    return layers(random_tensor(2, dim0=4, dim1=8))


@autotest(n=3, profiles=())
def convolution():
    return torch.relu(torch.nn.Conv2d(3, 4, 3)(random_tensor(4, dim0=1, dim1=3, dim2=8, dim3=8)))


@autotest(n=3, profiles=())
def attention():
    q, k = random_tensor(2, dim0=4, dim1=8), random_tensor(2, dim0=4, dim1=8)
    return torch.softmax(q @ k.T / 8**0.5, dim=-1) @ k


@autotest(n=3, profiles=())
def activation():
    return torch.nn.functional.gelu(random_tensor(2, dim0=4, dim1=8))
