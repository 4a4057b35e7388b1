# The two commands: `make demo` trains a model through the switch, `make test` runs every test. Both install what they
# need first (system packages through apt, Python packages into .venv), and are quick when it is there.
VENV := .venv

.PHONY: demo test conformance setup build bench lint format sanitize tidy
demo: setup
	$(VENV)/bin/netfold demo

test:
	@tools/test.sh $(VENV)

# Every test of PyTorch's own distributed suite, also those left out for what this machine may miss.
conformance:
	@tools/setup.sh $(VENV) test
	@$(MAKE) --no-print-directory build
	NETFOLD_CONFORMANCE=all $(VENV)/bin/python -m pytest tests/python/conformance

setup:
	@tools/setup.sh $(VENV) demo
	@$(MAKE) --no-print-directory build

# The C++ core, netfold-switch and the Python extension, again only where sources changed.
build:
	@echo "build: the C++ core and the Python extension (the first time takes a minute or more)" >&2
	@flock .build.lock $(VENV)/bin/pip install -q --no-build-isolation --no-deps -e . -C cmake.define.CMAKE_BUILD_TYPE=RelWithDebInfo

bench: setup
	$(VENV)/bin/netfold bench codec
	$(VENV)/bin/netfold bench allreduce --against gloo,openmpi

lint:
	tools/lint.sh $(VENV)

format:
	tools/lint.sh $(VENV) fix

# Address and undefined-behaviour sanitizers over what meets the network, and the engine; ten million hostile packets too.
sanitize:
	tools/sanitize.sh

tidy:
	clang-tidy --quiet -p build/test $$(git ls-files 'core/*.cc' 'apps/*.cc')
