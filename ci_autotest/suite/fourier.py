"""Fourier transforms: complex and real, in one or more dimensions, cut or padded to a length, normalized or not."""

from ci_autotest import nothing, oneof, random, random_bool, random_dtype, random_tensor, torch
from ci_autotest.suite import autotest

# Transforms over several dimensions take the last one along: without it, torch 2.13 writes out of bounds on a CPU,
# for example torch.fft.fftn(torch.ones(3, 1024, 5), dim=(0, 1)).


@autotest()
def fft():
    x = random_tensor(ndim=random(1, 6).to(int), dtype=random_dtype(["float", "complex", "int"]))
    return torch.fft.fft(
        x,
        n=random(1, 12) | nothing(),
        dim=oneof(0, -1, nothing()),
        norm=oneof("forward", "backward", "ortho", nothing()),
    )


@autotest()
def ifft():
    x = random_tensor(ndim=random(1, 6).to(int), dtype=random_dtype(["complex"]))
    return torch.fft.ifft(
        x, n=random(1, 12) | nothing(), dim=oneof(0, -1, nothing()), norm=oneof("forward", "ortho", nothing())
    )


@autotest()
def rfft():
    x = random_tensor(ndim=random(1, 6).to(int), dtype=random_dtype(["float"]))
    return torch.fft.rfft(
        x, n=random(1, 12) | nothing(), dim=oneof(0, -1, nothing()), norm=oneof("forward", "ortho", nothing())
    )


@autotest()
def irfft():
    x = random_tensor(ndim=random(1, 6).to(int), dtype=random_dtype(["complex"]))
    return torch.fft.irfft(
        x, n=random(1, 12) | nothing(), dim=oneof(0, -1, nothing()), norm=oneof("forward", "ortho", nothing())
    )


@autotest()
def hfft():
    x = random_tensor(ndim=random(1, 6).to(int), dtype=random_dtype(["complex"]))
    return torch.fft.hfft(
        x, n=random(1, 12) | nothing(), dim=oneof(0, -1, nothing()), norm=oneof("forward", "ortho", nothing())
    )


@autotest()
def ihfft():
    x = random_tensor(ndim=random(1, 6).to(int), dtype=random_dtype(["float"]))
    return torch.fft.ihfft(
        x, n=random(1, 12) | nothing(), dim=oneof(0, -1, nothing()), norm=oneof("forward", "ortho", nothing())
    )


@autotest()
def fft2():
    x = random_tensor(ndim=random(2, 5).to(int), dtype=random_dtype(["float", "complex"]))
    return torch.fft.fft2(
        x,
        s=oneof((3, 4), nothing()),
        dim=oneof((0, -1), nothing()),
        norm=oneof("forward", "backward", "ortho", nothing()),
    )


@autotest()
def ifftn():
    x = random_tensor(ndim=random(1, 6).to(int), dtype=random_dtype(["complex"]))
    return torch.fft.ifftn(
        x, s=oneof((3,), nothing()), dim=oneof((0,), nothing()), norm=oneof("forward", "backward", "ortho", nothing())
    )


@autotest()
def rfft2():
    x = random_tensor(ndim=random(2, 5).to(int), dtype=random_dtype(["float"]))
    return torch.fft.rfft2(
        x, s=oneof((3, 4), nothing()), dim=oneof((0, -1), nothing()), norm=oneof("forward", "ortho", nothing())
    )


@autotest()
def fftshift():
    x = random_tensor(ndim=random(1, 6).to(int), dtype=random_dtype(["float", "half", "complex"]))
    return torch.fft.fftshift(x, dim=oneof(0, -1, nothing()))


@autotest()
def fftfreq():
    return torch.fft.fftfreq(
        random(1, 20).to(int), d=random(0.1, 2).to(float) | nothing(), dtype=oneof(torch.float64, nothing())
    )


@autotest(dtypes=None)
def stft():
    size = oneof(4, 8, 5)
    x = random_tensor(ndim=random(1, 3).to(int), dim0=random(2, 4).to(int), dim1=random(16, 40).to(int))
    return torch.stft(
        torch.nn.functional.pad(x, (0, 20)),
        n_fft=size,
        hop_length=random(1, 5).to(int) | nothing(),
        win_length=oneof(3, nothing()),
        normalized=random_bool() | nothing(),
        center=random_bool() | nothing(),
        pad_mode=oneof("constant", "reflect", nothing()),
        onesided=random_bool() | nothing(),
        return_complex=True,
    )


def norms():
    return oneof("forward", "backward", "ortho", nothing())


@autotest()
def fftn():
    x = random_tensor(ndim=random(2, 4).to(int), dtype=random_dtype(["float", "complex"]))
    s, dim = oneof((3, 4), nothing()), oneof((0, -1), (-1, 0), nothing())
    return torch.fft.fftn(x, s=s, dim=dim, norm=norms()), torch.fft.ifft2(x, s=s, dim=dim | nothing(), norm=norms())


@autotest()
def rfftn():
    x = random_tensor(ndim=random(2, 4).to(int), dtype=random_dtype(["float"]))
    s, dim = oneof((3, 4), nothing()), oneof((0, -1), (-1, 0), nothing())
    norm = norms()
    return (
        torch.fft.rfftn(x, s=s, dim=dim, norm=norm),
        torch.fft.ihfftn(x, s=s, dim=dim, norm=norm),
        torch.fft.ihfft2(x, s=s, dim=dim | nothing(), norm=norm),
    )


@autotest()
def irfftn():
    x = random_tensor(ndim=random(2, 4).to(int), dtype=random_dtype(["complex"]))
    s, dim, norm = oneof((3, 4), (4, 5), nothing()), oneof((0, -1), (-1, 0), nothing()), norms()
    return torch.fft.irfftn(x, s=s, dim=dim, norm=norm), torch.fft.irfft2(x, s=s, dim=dim | nothing(), norm=norm)


@autotest()
def hfftn():
    x = random_tensor(ndim=random(2, 4).to(int), dtype=random_dtype(["complex"]))
    s, dim, norm = oneof((3, 4), (4, 5), nothing()), oneof((0, -1), (-1, 0), nothing()), norms()
    return torch.fft.hfftn(x, s=s, dim=dim, norm=norm), torch.fft.hfft2(x, s=s, dim=dim | nothing(), norm=norm)


@autotest()
def ifftshift():
    x = random_tensor(ndim=random(1, 6).to(int), dtype=random_dtype(["float", "half", "complex"]))
    return torch.fft.ifftshift(x, dim=oneof(0, -1, nothing())), torch.fft.rfftfreq(random(1, 9).to(int), d=2.0)


@autotest()
def istft():
    # Windows overlap by half and more, so that the inverse is defined everywhere.
    size, frames = oneof(4, 8), random(4, 8).to(int)
    x = random_tensor(dims=(random(1, 3).to(int), size // 2 + 1, frames), dtype=torch.complex64)
    return torch.istft(
        x,
        n_fft=size,
        hop_length=size // 4 | nothing(),
        window=oneof(torch.hann_window(size) + 0.1, nothing()),
        center=oneof(True, nothing()),
        normalized=random_bool() | nothing(),
    )
