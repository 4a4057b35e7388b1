# make demo | test | bench | build | setup | lint | format
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python

.PHONY: setup build test demo bench lint format
setup:
	tools/setup.sh $(VENV)

build:
	flock .build.lock $(VENV)/bin/pip install -q --no-build-isolation --no-deps -e . -C cmake.define.CMAKE_BUILD_TYPE=RelWithDebInfo
