# The two commands: `make demo` trains a model through the switch, `make test` runs every test. Both install what they
# need first (system packages through apt, Python packages into .venv), and are quick when it is there.
VENV := .venv

.PHONY: demo test check conformance test-gpu setup build dist deb site bench lint stubs format sanitize tidy
demo: setup
	$(VENV)/bin/netfold demo

test:
	@tools/test.sh $(VENV)

# Format, lint, types, quick C++ tests, clusters in virtual time: without PyTorch, in a minute or two.
check:
	@tools/check.sh $(VENV)

# Every test of PyTorch's own distributed suite, also those left out for what this machine may miss.
conformance:
	@tools/setup.sh $(VENV) test
	@$(MAKE) --no-print-directory build
	NETFOLD_CONFORMANCE=all $(VENV)/bin/python -m pytest tests/python/conformance

# What needs a GPU: the tests marked so, and what `netfold doctor` finds of it.
test-gpu:
	@tools/setup.sh $(VENV) test
	@$(MAKE) --no-print-directory build
	$(VENV)/bin/python -m pytest -m gpu tests/python
	$(VENV)/bin/netfold doctor

setup:
	@tools/setup.sh $(VENV) demo
	@$(MAKE) --no-print-directory build

# The C++ core, netfold-switch and the Python extension, again only where sources changed.
build:
	@echo "build: the C++ core and the Python extension (the first time takes a minute or more)" >&2
	@flock .build.lock $(VENV)/bin/pip install -q --no-build-isolation --no-deps -e . -C cmake.define.CMAKE_BUILD_TYPE=RelWithDebInfo

# What to copy to other machines, in dist/. A wheel: no compiler and no packages of the distribution are needed there. A
# Debian package of the switch, for machines with this distribution: no Python is needed there. With PROCESSOR=aarch64:
# both for 64-bit ARM; that package has no DPDK, and is for every Debian.
dist:
	@tools/setup.sh $(VENV) dist
	@flock .build.lock tools/dist.sh $(VENV) dist $(PROCESSOR)
	@[ -n "$(PROCESSOR)" ] || tools/deb.sh dist
	@[ -z "$(PROCESSOR)" ] || tools/deb.sh dist "$$(ls -t dist/netfold-*_$(PROCESSOR).whl | head -n 1)" $(PROCESSOR)

deb:
	@tools/setup.sh $(VENV) dist
	@tools/deb.sh dist

# The documents as a site, in build/site: static files for any web server, or to open in a browser.
site:
	@tools/setup.sh $(VENV) site
	@$(VENV)/bin/python tools/site/build.py

bench: setup
	$(VENV)/bin/netfold bench codec
	$(VENV)/bin/netfold bench allreduce --against gloo,openmpi

lint:
	tools/lint.sh $(VENV)

# The types of the compiled module, after a change in bindings/.
stubs: build
	tools/stubs.sh $(VENV)

format:
	tools/lint.sh $(VENV) fix

# Sanitizers of addresses, undefined behaviour and threads; ten million hostile packets too.
sanitize:
	tools/sanitize.sh address
	tools/sanitize.sh thread

tidy:
	$(VENV)/bin/python tools/tidy.py $(VENV)/bin/clang-tidy
