"""Python environments of other frameworks: ``doctor`` prints how to install them, and ``make candidates`` does it.

Every package is pinned and installed without its dependencies, because OneFlow 0.9.0 requires packages that it does not
need, and versions of the CUDA libraries with which it cannot be loaded.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Folder of the environments, in the configuration's folder.
FOLDER: Final = ".venvs"


class Recipe(NamedTuple):
    """The contents of an environment.

    Attributes:
        module: The framework's module.
        python: Version of CPython, major and minor.
        packages: Requirements, with all dependencies.
        size_mb: Approximate size of the download.
    """

    module: str
    python: str
    packages: tuple[str, ...]
    size_mb: int

    @property
    def pins(self) -> str:
        """Text of ``pins.txt``, by which an environment is known to be up to date."""
        return "\n".join((f"python {self.python}", *self.packages, ""))


#: Recipes by name of the environment. torch 1.12.1 and OneFlow 0.9.0 have no wheels for Python after 3.10.
RECIPES: Final[Mapping[str, Recipe]] = MappingProxyType({
    "oneflow": Recipe(
        "oneflow",
        "3.10",
        (
            "oneflow==0.9.0", "numpy==1.23.5", "nvidia-cublas-cu11==11.10.3.66", "nvidia-cudnn-cu11==8.5.0.96",
            "certifi==2026.10.18", "charset-normalizer==3.5.2", "idna==3.20", "markdown-it-py==4.3.0", "mdurl==0.1.2",
            "pillow==12.3.0", "protobuf==3.20.3", "Pygments==2.21.0", "requests==2.34.2", "rich==15.0.0",
            "tqdm==4.70.1", "urllib3==2.8.0",
        ),
        2_000,
    ),
    "paddle": Recipe(
        "paddle",
        "3.11",
        (
            "paddlepaddle==3.3.1", "numpy==2.4.6", "anyio==4.16.0", "certifi==2026.10.18", "h11==0.16.0",
            "httpcore==1.0.9", "httpx==0.28.1", "idna==3.20", "networkx==3.6.1", "opt-einsum==3.3.0",
            "pillow==13.0.0", "protobuf==7.36.2", "safetensors==0.8.0", "typing_extensions==4.16.0",
        ),
        250,
    ),
    "jax": Recipe(
        "jax",
        "3.11",
        ("jax==0.10.2", "jaxlib==0.10.2", "numpy==2.4.6", "ml_dtypes==0.6.0", "opt_einsum==3.4.0", "scipy==1.17.1"),
        150,
    ),
    "mindspore": Recipe(
        "mindspore",
        "3.11",
        (
            "mindspore==2.10.0", "numpy==1.26.4", "asttokens==3.0.2", "astunparse==1.6.3", "dill==0.4.1",
            "packaging==26.3", "pillow==13.0.0", "protobuf==7.36.2", "psutil==7.2.2", "safetensors==0.8.0",
            "scipy==1.17.1", "six==1.17.0", "wheel==0.48.0",
        ),
        850,
    ),
    "torch-1.12": Recipe(
        "torch", "3.10", ("torch==1.12.1", "numpy==1.26.4", "typing_extensions==4.16.0"), 800,
    ),
})  # fmt: skip


def interpreter(name: str) -> str:
    """Return the path of an environment's interpreter, relative to the configuration's folder."""
    return f"{FOLDER}/{name}/bin/python"


def package_of(module: str) -> str:
    """Return the package that has a module; its own name if no recipe knows better."""
    recipe = next((recipe for recipe in RECIPES.values() if recipe.module == module), None)
    # The first package of a recipe is the framework itself.
    return recipe.packages[0].partition("==")[0] if recipe else module


def beside_torch(packages: Iterable[str]) -> str:
    """Return the command that installs packages beside torch."""
    return f"python -m pip install {' '.join(packages)}"


def commands(name: str) -> tuple[str, ...]:
    """Return the commands that install an environment by hand."""
    recipe, python = RECIPES[name], interpreter(name)
    return (
        f"python{recipe.python} -m venv {FOLDER}/{name}",
        f"{python} -m pip install --no-deps {' '.join(recipe.packages)}",
    )
