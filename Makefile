# One verb per task. `make run` and `make test` make the environment themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
WRITER := $(VENV)/.docs
ONE_THREAD := OMP_NUM_THREADS=1
# Each process of a test would compile the package anew where the environment forbids bytecode.
unexport PYTHONDONTWRITEBYTECODE
# Tests wait for processes, so that more of them than there are processors are run at once.
PROCESSORS := $(shell getconf _NPROCESSORS_ONLN 2> /dev/null || echo 2)
ONE_MORE   := -n $(shell expr $(PROCESSORS) + 1)
TWO_MORE   := -n $(shell expr $(PROCESSORS) + 2)
PARTS      := $(ONE_MORE) --maxprocesses 8 tests/unit tests/contract tests/integration tests/quality
# What times kernels and what kills workers as they start need a machine that does nothing else.
ALONE      := $(addprefix tests/end_to_end/test_,speed.py chaos.py)
# The files begin in the order of their `conftest.py`, not with those of the most tests.
END_TO_END := --no-loadscope-reorder $(ALONE:%=--ignore=%) tests/end_to_end
SLOWEST    := --durations=20 --durations-min=5
HEAVY      := 'heavy and not matrix'
BESIDE := ray onnx onnxruntime onnxscript 'triton==3.9.0' 'numba==0.68.1' 'ninja==1.13.2'
LOCK   := $(BIN)/uv pip compile pyproject.toml --quiet --generate-hashes --no-annotate --no-header --constraints constraints.txt
IMAGE  := --python-version 3.11 --python-platform x86_64-manylinux_2_28

.PHONY: run survey test test-all matrix candidates check lock bench soak docs pictures format clean
.DEFAULT_GOAL := run

# The environment is made again when the pins or the project's requirements change.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --upgrade -c constraints.txt pip setuptools wheel
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -c constraints.txt 'torch==2.13.0'
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation --group dev --editable '.[torch]'
	touch $(READY)

run: $(READY)  ## what a run looks like: a few tests on a compiler with known differences, then kernels of which one has a fault
	$(BIN)/python examples/demo.py

survey: $(READY)  ## the whole shipped suite on torch itself and on a compiler, the kernels, runtimes of other projects: half an hour
	$(BIN)/python examples/demo.py --whole
	$(BIN)/python examples/runtimes

test: check  ## everything that needs torch only
	$(ONE_THREAD) $(BIN)/python -m pytest $(SLOWEST) $(PARTS)
	$(BIN)/python -m pytest $(SLOWEST) $(TWO_MORE) $(END_TO_END)
	$(BIN)/python -m pytest tests/end_to_end/test_speed.py

test-all: $(WRITER)  ## what needs an image, npm packages, a cluster or other frameworks
	$(BIN)/python -m candidates || echo "WHAT NEEDS THE CANDIDATES NAMED ABOVE IS NOT TESTED: its tests are skipped with that reason"
	$(BIN)/python -c 'import ray, onnxruntime, onnxscript, triton, numba, ninja' 2> /dev/null || \
	  $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -c constraints.txt $(BESIDE)
	$(ONE_THREAD) $(BIN)/python -m pytest -m $(HEAVY) $(SLOWEST) $(PARTS)
	$(BIN)/python -m pytest -m $(HEAVY) $(SLOWEST) $(TWO_MORE) $(END_TO_END)
	$(BIN)/python -m pytest -m $(HEAVY) $(ALONE)

matrix: $(READY)  ## the rows of large tables that the tests above leave out
	$(BIN)/python -m pytest -m matrix tests

# `make candidates ONLY="paddle jax"`: oneflow, paddle, jax, mindspore, torch-1.12; OneFlow and torch 1.12 need a CPython 3.10.
candidates: $(READY)  ## interpreters of other frameworks, below .venvs
	$(BIN)/python -m candidates $(ONLY)

check: $(READY)  ## format, lint, types, floors, action and workflows
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.house
	$(BIN)/check-jsonschema --builtin-schema vendor.github-actions action.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows workflows/*.yml .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.gitlab-ci --data-transform gitlab-ci ci_autotest/commands/templates/*gitlab-ci.yml
	$(BIN)/zizmor --offline --quiet --persona auditor action.yml workflows .github
	$(BIN)/hadolint Dockerfile
	@if command -v npm > /dev/null; then $(BIN)/python -m tests.workflow_parser action.yml workflows/*.yml .github/workflows/*.yml; \
	else echo "npm is not here: GitHub's own parser reads the workflows in \`make test-all\` only"; fi

lock: $(READY)  ## the hashes of what the publisher and the images install; TORCH_CPU names a folder with torch's CPU build
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check 'uv==0.13.8'
	$(LOCK) --universal --python-version 3.10 --output-file locks/report.txt
	$(LOCK) --extra torch $(IMAGE) --output-file locks/image-cuda.txt
	$(LOCK) --extra torch $(IMAGE) --find-links $(TORCH_CPU) --output-file locks/image-cpu.txt

bench: $(READY)  ## ratios against raw execution, in one run
	$(ONE_THREAD) $(BIN)/python -m benchmarks

# `make soak CASES="0 64"`: from which case of each test, and how many. Goes on where it was ended: soak.jsonl is the journal.
soak: $(READY)  ## the shipped suite against implementations that are different and right: 120,000 comparisons
	$(ONE_THREAD) $(BIN)/python -m benchmarks.soak $(CASES)

$(WRITER): $(READY)
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -c constraints.txt --group docs
	touch $(WRITER)

docs: $(WRITER)  ## the documentation as a site, in build/site, and its tables of the code; a broken link or an undocumented public name fails
	$(BIN)/python -m docs.generated
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pictures: $(WRITER)  ## the pictures of the documentation, from real runs; needs Chromium and npm
	$(BIN)/python -m docs.pictures

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .venvs autotest-report build dist
