# Two commands do all the set-up: `make serve` runs a broker, `make test` passes the tests.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Spark's jobs have an environment of their own: `make test` stays without PySpark, and short.
PIPELINE_VENV ?= .venv-pipeline
PIPELINE_BIN = $(PIPELINE_VENV)/bin
# The newest Spark that the jobs fit, beside the one that constraints.txt pins.
NEWEST_SPARK = 4.1.1
NEWEST_VENV = .venv-pipeline-newest
# Another Python than that of the tests, for what must not differ between the two.
OTHER_PYTHON ?= python3.13
OTHER_VENV = .venv-other
SEEDS ?= 300
N ?= 200000
MINUTES ?= 2
SIEGE_MINUTES ?= 4
# Processes that share the tests, four at most; 0 runs them in one, where `ARGS=-s` shows what they print.
JOBS ?= auto

.PHONY: serve test pipeline test-pipeline test-pipeline-newest test-oldest-pytest test-other-python check check-pipeline rebalance record sim sim-reach sim-pythons storm siege differential fuzz nightly bench bench-pipeline docs dist clean

serve: $(VENV)/ready
	$(BIN)/ottla serve $(ARGS)

# A test that hangs where the timeout of tests cannot reach it, in compiled code, ends its process with all stacks shown.
# Its process is not replaced: pytest-xdist 3.8 would wait for ever for the one that took its place (pytest-xdist 1323).
SHARED_OUT := --maxprocesses 4 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 \
	-o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true

test: $(VENV)/ready-dev
	$(BIN)/python -m pytest --numprocesses $(JOBS) $(SHARED_OUT) $(ARGS)

# PySpark and all that the jobs of `ottla pipeline` need, in .venv-pipeline.
pipeline: $(PIPELINE_VENV)/ready

# The jobs on Spark, and Spark's connector. What needs Java or Spark's jars skips where they cannot be had.
test-pipeline: $(PIPELINE_VENV)/classes
	$(PIPELINE_BIN)/python -m pytest tests/pipeline --numprocesses $(JOBS) $(SHARED_OUT) --maxprocesses 2 $(ARGS)

# The same with the newest Spark that fits.
test-pipeline-newest: $(NEWEST_VENV)/ready
	$(MAKE) test-pipeline PIPELINE_VENV=$(NEWEST_VENV)

# The plugin's own tests on the oldest pytest that it is for, which lies beside the pinned one. pip says that pytest-asyncio
# wants a newer one: it works with this one too.
test-oldest-pytest: $(VENV)/ready-dev
	$(BIN)/python -m pip install --quiet --upgrade --target build/pytest-8 "pytest==8.0.*"
	PYTHONPATH=$(CURDIR)/build/pytest-8:$(CURDIR) $(BIN)/python -m pytest $(addprefix tests/kit/test_,plugin.py setups.py verdicts.py scope_verdicts.py)

# All tests on OTHER_PYTHON, in an environment of its own.
test-other-python:
	$(MAKE) test VENV=$(OTHER_VENV) PYTHON=$(OTHER_PYTHON)

check: $(VENV)/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports

# The types of the pipeline, which need PySpark. Beside `check`, mypy finds here what it has kept there.
check-pipeline: $(PIPELINE_VENV)/ready
	$(PIPELINE_BIN)/pyright --project pyright-pipeline.json
	$(PIPELINE_BIN)/mypy

# A consumer group of three that rebalances; `record` draws docs/rebalance.svg from a run of it.
rebalance: $(VENV)/ready
	$(BIN)/python examples/rebalance_live.py $(ARGS)

record: $(VENV)/ready
	$(BIN)/python examples/record_rebalance.py docs/rebalance.svg

# Run SEEDS seeds of both simulations, of one broker and of a cluster; FIRST=n starts at seed n, WORLD=cluster runs one.
# WORLD=transactions runs a third, of one broker under transactional producers.
sim: $(VENV)/ready-dev
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(if $(FIRST),--first $(FIRST)) $(if $(WORLD),--world $(WORLD)) --jobs $(shell nproc)

# Which functions and error codes SEEDS seeds of both simulations never reach; REACH=p fails below p percent.
sim-reach: $(VENV)/ready-dev
	$(BIN)/python -m tests.simulation.reach --seeds $(SEEDS) $(if $(FIRST),--first $(FIRST)) $(if $(REACH),--at-least $(REACH)) --jobs $(shell nproc)

# The same seeds take the same steps on OTHER_PYTHON, in an environment of its own.
sim-pythons: $(VENV)/ready-dev
	$(MAKE) VENV=$(OTHER_VENV) PYTHON=$(OTHER_PYTHON) $(OTHER_VENV)/ready-dev
	$(BIN)/python -m tests.simulation.pythons --other $(OTHER_VENV)/bin/python

# Three broker processes and etcd, killed and paused for MINUTES under real clients; SEED=s repeats what was done when.
storm: $(VENV)/ready-dev
	$(BIN)/python -m tests.storm --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# One broker with 512 MiB under what clients can do, for SIEGE_MINUTES; ATTACKS="NAME …" chooses, SEED=s repeats.
siege: $(VENV)/ready-dev
	$(BIN)/python -m tests.siege --minutes $(SIEGE_MINUTES) $(if $(ATTACKS),--attacks $(ATTACKS)) $(if $(SEED),--seed $(SEED))

# N equal requests to this broker and to Apache Kafka 4.1, drawn from SEED: what differs is printed. Needs Java and Maven.
differential: N = 5000
differential: $(VENV)/ready-dev
	$(BIN)/python -m tests.differential --exchanges $(N) $(if $(SEED),--seed $(SEED))

# N hostile inputs; ARGS=--before-login sends only what needs no login.
fuzz: $(VENV)/ready-dev
	$(BIN)/python -m tests.fuzz --inputs $(N) $(ARGS)

# All that takes long, one after another; it stops at the first failure. FIRST=n begins with other seeds, MINUTES is the storm's.
nightly: SEEDS = 1000
nightly: MINUTES = 20
nightly: SIEGE_MINUTES = 6
nightly: N = 1000000
nightly: $(VENV)/ready-dev $(PIPELINE_VENV)/classes
	OTTLA_ARCHIVE_KILLS=10 $(PIPELINE_BIN)/python -m pytest tests/pipeline/test_archive.py
	OTTLA_SPARK_CLUSTER=1 $(PIPELINE_BIN)/python -m pytest tests/pipeline/test_jobs.py
	OTTLA_SPARK_SECURED=1 $(PIPELINE_BIN)/python -m pytest tests/pipeline/test_secured.py
	$(MAKE) test-pipeline-newest
	OTTLA_STORE_CRASHES=20 $(BIN)/python -m pytest tests/cluster/test_metadata_file_crashes.py tests/cluster/test_etcd_members.py
	OTTLA_WALKS=3000 $(BIN)/python -m pytest tests/storage/test_refusing_disk.py tests/storage/test_append_queue.py
	OTTLA_STREAMS=10 $(BIN)/python -m pytest tests/clients/test_kafka_streams.py
	OTTLA_BANK=600 $(BIN)/python -m pytest tests/clients/test_bank_transfers.py
	OTTLA_KGO=1 $(BIN)/python -m pytest tests/clients/test_franz_go.py
	OTTLA_FAILED_SEEDS=1 $(BIN)/python -m pytest tests/simulation/cluster/test_worlds.py
	OTTLA_SUITE=1 $(BIN)/python -m pytest tests/kit/test_suite_isolation.py tests/kit/test_workers.py tests/kit/test_java_clients.py
	OTTLA_SUITE=1 $(BIN)/python -m pytest tests/kit/test_many_tests.py tests/audit/test_seeded_bugs.py
	$(MAKE) test-oldest-pytest
	$(MAKE) sim SEEDS=$(SEEDS)
	$(MAKE) sim SEEDS=300 WORLD=transactions
	$(MAKE) sim-reach SEEDS=100 REACH=95
	if $(OTHER_PYTHON) --version; then $(MAKE) sim-pythons test-other-python; else echo "skipped: sim-pythons and test-other-python, there is no $(OTHER_PYTHON)"; fi
	$(MAKE) storm MINUTES=$(MINUTES)
	$(MAKE) siege SIEGE_MINUTES=$(SIEGE_MINUTES)
	$(MAKE) differential N=20000 $(if $(FIRST),SEED=$(FIRST))
	$(MAKE) fuzz N=$(N)

bench: $(VENV)/ready-dev
	$(BIN)/python -m benchmarks $(ARGS)

# The archive beside a bare consumer, and the observatory over a million events.
bench-pipeline: $(PIPELINE_VENV)/ready
	$(PIPELINE_BIN)/python -m benchmarks.pipeline $(ARGS)

# Regenerate what is made from the code: message stubs, docs/configuration.md, docs/apis.md, docs/cli.md, the tables of docs/events.md.
docs: $(VENV)/ready-dev
	$(BIN)/python -m ottla.protocol.stubs
	$(BIN)/python -m ottla.cli.reference

# The wheels of Ottla and of pytest-ottla, in dist.
dist: $(VENV)/ready-dev
	$(BIN)/python -m hatchling build -t wheel
	cd distributions/pytest-ottla && $(abspath $(BIN))/python -m hatchling build -t wheel -d $(CURDIR)/dist

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"

$(VENV)/ready: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/ready-dev: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev
	@touch $@

# `test-pipeline-newest` names the other one here, which has a rule of its own.
ifneq ($(PIPELINE_VENV),$(NEWEST_VENV))
$(PIPELINE_VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(PIPELINE_VENV)
	$(PIPELINE_BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(PIPELINE_BIN)/python -m pip install --quiet --constraint constraints.txt --editable . --group dev --group pipeline
	@touch $@
endif

$(NEWEST_VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(NEWEST_VENV)
	$(NEWEST_VENV)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	grep -v '^pyspark==' constraints.txt > $(NEWEST_VENV)/constraints.txt
	$(NEWEST_VENV)/bin/python -m pip install --quiet --constraint $(NEWEST_VENV)/constraints.txt \
		--editable . --group dev deltalake duckdb polars pyspark==$(NEWEST_SPARK)
	@touch $@

# Spark's classes as Java starts fastest with; where they cannot be had, the tests say so, or do without.
$(PIPELINE_VENV)/classes: $(PIPELINE_VENV)/ready
	-$(PIPELINE_BIN)/python -m tests.pipeline.classes
	@touch $@

clean:
	rm -rf $(VENV) $(PIPELINE_VENV) $(NEWEST_VENV) $(OTHER_VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
