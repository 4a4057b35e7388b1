# The two commands: `make demo` trains a model through the switch, `make test` runs every test. Both install what they
# need first (system packages through apt, Python packages into .venv), and are quick when it is there.
VENV := .venv

.PHONY: demo test setup build bench lint format sanitize fuzz tidy
demo: setup
	$(VENV)/bin/netfold demo

test:
	@tools/test.sh $(VENV)

setup:
	tools/setup.sh $(VENV) demo
	$(MAKE) --no-print-directory build

# The C++ core, netfold-switch and the Python extension, again only where sources changed.
build:
	flock .build.lock $(VENV)/bin/pip install -q --no-build-isolation --no-deps -e . -C cmake.define.CMAKE_BUILD_TYPE=RelWithDebInfo

bench: setup
	$(VENV)/bin/netfold bench codec
	$(VENV)/bin/netfold bench allreduce --against gloo,openmpi

lint:
	tools/lint.sh $(VENV)

format:
	tools/lint.sh $(VENV) fix

sanitize:
	tools/sanitize.sh

# The long one: ten million random and mutated packets at the switch, under sanitizers.
fuzz:
	NETFOLD_FUZZ_PACKETS=10000000 tools/sanitize.sh

tidy:
	clang-tidy --quiet -p build/test $$(git ls-files 'core/*.cc' 'apps/*.cc')
