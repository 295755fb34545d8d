# The released image names its base by digest: --build-arg BASE=python:3.11-slim@sha256:...
ARG BASE=python:3.11-slim
# hadolint ignore=DL3006
FROM ${BASE}

LABEL org.opencontainers.image.title="ci-autotest" \
      org.opencontainers.image.description="Operator-alignment testing for deep-learning frameworks and kernels, in CI" \
      org.opencontainers.image.licenses="Apache-2.0"

# A compiler and Python's headers, for torch.compile. A base whose Python is Debian's own has its headers in python3-dev:
# --build-arg HEADERS=python3-dev. Versions are the base's snapshot, which its digest pins.
ARG HEADERS=""
# hadolint ignore=DL3008,SC2086
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ ${HEADERS} \
 && rm -rf /var/lib/apt/lists/*

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PYTHONUNBUFFERED=1
RUN python -m venv /venv
ENV PATH=/venv/bin:$PATH

# The CPU build of torch, far the largest layer, changes least. Where an exact version brings CUDA, pip is pointed at the
# CPU builds with --build-arg PIP_EXTRA_INDEX_URL=...; an image with CUDA inside by mistake is not built.
ARG TORCH=2.13.0
ARG PIP_EXTRA_INDEX_URL
COPY constraints.txt /src/
RUN python -m pip install -c /src/constraints.txt "torch==${TORCH}" setuptools wheel \
 && python -c "import torch; assert torch.version.cuda is None, 'torch ' + torch.__version__ + ' is a CUDA build'"

# Its dependencies, which change with pyproject.toml; then the package alone, which changes with every commit.
COPY pyproject.toml LICENSE /src/
RUN python -c "import tomllib; print(*tomllib.load(open('/src/pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" > /src/requirements.txt \
 && python -m pip install -c /src/constraints.txt -r /src/requirements.txt
COPY README.md /src/
COPY ci_autotest /src/ci_autotest
RUN python -m pip install --no-deps --no-build-isolation /src && rm -rf /src/build

# Nothing is written outside /tmp and the folder of the report, so that the image also runs with --read-only --tmpfs /tmp.
# torch.compile loads what it compiled from there: --tmpfs /tmp:exec where a candidate uses it.
RUN useradd --uid 1001 --create-home --home-dir /home/autotest autotest
ENV HOME=/tmp \
    XDG_CACHE_HOME=/tmp/cache \
    TORCHINDUCTOR_CACHE_DIR=/tmp/inductor \
    TRITON_CACHE_DIR=/tmp/triton \
    PYTHONDONTWRITEBYTECODE=1
USER 1001
WORKDIR /github/workspace
ENTRYPOINT ["ci-autotest"]
CMD ["--help"]
