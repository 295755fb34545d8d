# Pinned by digest; dependabot updates it. Source: the index of `python:3.11-slim` (Debian trixie), August 2026.
ARG BASE=python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7
# hadolint ignore=DL3006
FROM ${BASE}

# torch.compile needs a compiler and Python's headers. If the base has Debian's own Python, its headers are in python3-dev:
# --build-arg HEADERS=python3-dev. The versions are not pinned: they follow Debian's stable release.
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

# All requirements, each file checked against its hash. This is by far the largest layer, and changes only with the lock file.
# VARIANT is cpu or cuda. The CPU build of torch has an index of its own; an empty TORCH_CPU_INDEX leaves it out.
# The build fails if torch is not of the variant.
ARG VARIANT=cpu
ARG TORCH_CPU_INDEX=https://download.pytorch.org/whl/cpu
COPY locks/image-${VARIANT}.txt /build/lock.txt
# hadolint ignore=DL3042
RUN if [ "${VARIANT}" = cpu ]; then export PIP_EXTRA_INDEX_URL="${TORCH_CPU_INDEX}"; fi \
 && python -m pip install --require-hashes --only-binary=:all: --no-deps -r /build/lock.txt \
 && python -c "import sys, torch; sys.exit(0 if (torch.version.cuda is None) == (sys.argv[1] == 'cpu') else f'torch {torch.__version__} is not of variant {sys.argv[1]}')" "${VARIANT}"

# The package itself, in a layer of its own because it changes with every commit.
COPY pyproject.toml setup.py LICENSE README.md /build/
COPY docs /build/docs
COPY workflows /build/workflows
COPY ci_autotest /build/ci_autotest
RUN python -m pip install --no-deps --no-build-isolation /build && rm -rf /build \
 && ln -s /venv/bin/ci-autotest /usr/local/bin/ci-autotest

# A container that starts as root continues as the owner of its working folder, so that the report belongs to that user.
COPY --chmod=755 image/entry.sh /usr/local/bin/ci-autotest-entry

# NVIDIA's container runtime reads the first two variables if the engine has no `--gpus`.
# Nothing is written outside of /tmp and the folder of the tests, so that the image also runs with --read-only --tmpfs /tmp.
# torch.compile loads its compiled code from /tmp: use --tmpfs /tmp:exec if a candidate compiles.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    HOME=/tmp \
    USER=autotest \
    XDG_CACHE_HOME=/tmp/cache \
    TORCHINDUCTOR_CACHE_DIR=/tmp/inductor \
    TRITON_CACHE_DIR=/tmp/triton \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /src
ENTRYPOINT ["ci-autotest-entry"]
CMD ["--help"]

# Last, so that a new commit's hash rebuilds no other layer.
ARG REVISION=""
ARG VERSION=""
ARG BASE
LABEL org.opencontainers.image.title="ci-autotest" \
      org.opencontainers.image.description="Operator-alignment testing for deep-learning frameworks and kernels, in CI" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
