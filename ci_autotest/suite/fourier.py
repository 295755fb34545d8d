"""Fourier transforms: complex and real, in one or more dimensions, cut or padded to a length, normalized or not."""

from ci_autotest import autotest, nothing, oneof, random, random_bool, random_dtype, random_tensor, torch


@autotest()
def fft():
    x = random_tensor(ndim=random(1, 4).to(int), dtype=random_dtype(["float", "complex", "int"]))
    return torch.fft.fft(
        x, n=random(1, 12) | nothing(), dim=oneof(0, -1), norm=oneof("forward", "backward", "ortho", nothing())
    )


@autotest()
def ifft():
    x = random_tensor(ndim=random(1, 4).to(int), dtype=random_dtype(["complex"]))
    return torch.fft.ifft(x, n=random(1, 12) | nothing(), dim=oneof(0, -1), norm=oneof("forward", "ortho", nothing()))


@autotest()
def rfft():
    x = random_tensor(ndim=random(1, 4).to(int), dtype=random_dtype(["float"]))
    return torch.fft.rfft(x, n=random(1, 12) | nothing(), dim=oneof(0, -1), norm=oneof("forward", "ortho", nothing()))


@autotest()
def irfft():
    x = random_tensor(ndim=random(1, 4).to(int), dtype=random_dtype(["complex"]))
    return torch.fft.irfft(x, n=random(1, 12), dim=oneof(0, -1), norm=oneof("forward", "ortho", nothing()))


@autotest()
def hfft():
    x = random_tensor(ndim=random(1, 4).to(int), dtype=random_dtype(["complex"]))
    return torch.fft.hfft(x, n=random(1, 12), dim=oneof(0, -1))


@autotest()
def ihfft():
    x = random_tensor(ndim=random(1, 4).to(int), dtype=random_dtype(["float"]))
    return torch.fft.ihfft(x, n=random(1, 12) | nothing(), dim=oneof(0, -1))


@autotest()
def fft2():
    x = random_tensor(ndim=random(2, 5).to(int), dtype=random_dtype(["float", "complex"]))
    return torch.fft.fft2(x, norm=oneof("forward", "backward", "ortho", nothing()))


@autotest()
def ifftn():
    x = random_tensor(ndim=random(1, 4).to(int), dtype=random_dtype(["complex"]))
    return torch.fft.ifftn(x, norm=oneof("forward", "backward", "ortho", nothing()))


@autotest()
def rfft2():
    x = random_tensor(ndim=random(2, 5).to(int), dtype=random_dtype(["float"]))
    return torch.fft.rfft2(x, norm=oneof("forward", "ortho", nothing()))


@autotest()
def fftshift():
    x = random_tensor(ndim=random(1, 4).to(int), dtype=random_dtype(["float", "complex"]))
    return torch.fft.fftshift(x, dim=oneof(0, -1, nothing()))


@autotest()
def fftfreq():
    return torch.fft.fftfreq(random(1, 20).to(int), d=random(0.1, 2).to(float) | nothing())


@autotest()
def stft():
    size = oneof(4, 8, 5)
    x = random_tensor(ndim=random(1, 3).to(int), dim0=random(2, 4).to(int), dim1=random(16, 40).to(int))
    return torch.stft(
        torch.nn.functional.pad(x, (0, 20)),
        n_fft=size,
        hop_length=random(1, 5).to(int) | nothing(),
        normalized=random_bool(),
        center=False,
        return_complex=True,
    )
