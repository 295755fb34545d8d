# The released file names its base by digest: the release workflow writes it here, and --build-arg BASE=... does by hand.
ARG BASE=python:3.11-slim
# hadolint ignore=DL3006
FROM ${BASE}

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

# Everything from outside, each file held against its hash; far the largest layer, it changes with the lock only.
# VARIANT is cpu or cuda. The CPU build of torch has an index of its own where the first one has CUDA builds:
# --build-arg PIP_EXTRA_INDEX_URL=... An image whose torch is not of its variant is not built.
ARG VARIANT=cpu
ARG PIP_EXTRA_INDEX_URL
COPY locks/image-${VARIANT}.txt /src/lock.txt
RUN python -m pip install --require-hashes --only-binary=:all: --no-deps -r /src/lock.txt \
 && python -c "import sys, torch; sys.exit(0 if (torch.version.cuda is None) == (sys.argv[1] == 'cpu') else f'torch {torch.__version__} is not of variant {sys.argv[1]}')" "${VARIANT}"

# The package alone, which changes with every commit.
COPY pyproject.toml LICENSE README.md /src/
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

# Last, so that a commit's hash makes no layer anew.
ARG REVISION=""
ARG VERSION=""
ARG BASE
LABEL org.opencontainers.image.title="ci-autotest" \
      org.opencontainers.image.description="Operator-alignment testing for deep-learning frameworks and kernels, in CI" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
