# The verbs of this repository. `make help` lists them; CI runs nothing else.
#
# Everything that is built lands outside the checkout, so that a second checkout starts warm:
#   LAKEMARK_CACHE    $HOME/.cache/lakemark     virtual environment, wheels, jars
#   CARGO_TARGET_DIR  $LAKEMARK_CACHE/target    Rust artefacts
#   PYTHON            python3.11                the interpreter that the virtual environment is made from
#
# Rust is built with --workspace only: another selection of crates turns other features of the shared dependencies on and
# compiles all of them again. The one exception, test-core, takes the crates that need no query engine.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

LAKEMARK_CACHE ?= $(HOME)/.cache/lakemark
CARGO_TARGET_DIR ?= $(LAKEMARK_CACHE)/target
VENV ?= $(LAKEMARK_CACHE)/venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
SPARK_VERSION ?= 4.1.4
SPARK_VERSIONS ?= 4.1.4 4.2.1 4.3.0
# Spark sessions that share the Spark tests: one of them keeps little more than half a core busy.
SPARK_SESSIONS ?= 2
# Test jars are on Maven Central for some versions; those of a line fit each version of it.
SPARK_TESTS_VERSION ?= $(patsubst 4.1.%,4.1.3,$(patsubst 4.2.%,4.2.0,$(SPARK_VERSION)))
PYTHON_PROCESSES ?= 2
N ?= 10000
JOINS ?= 500
JUDGED ?= 250
SEED ?= 1
STEPS ?= 7
SCANS ?= 10000
TABLES ?= 100
ROUNDS ?= 20
SCALE ?= 1
TRIALS ?= 120
POWER_STATES ?= 2
DISK_STRIDE ?= 13
WATCHES ?= 12
OPERATIONS ?= 20000
GRAPHS ?= 2000
STATEMENTS ?= 1000
CASES ?= 20000
QUERIES ?= 100000
# Tests that sync all the time are quicker in memory, which keeps what it has as long as the machine runs.
TEST_FOLDER ?= $(if $(wildcard /dev/shm/.),/dev/shm,$(or $(TMPDIR),/tmp))
SCHEDULES ?= 250
WALK ?= 12
ACTORS ?=
SHARD ?= 0/16
PROFILE ?= dev
export LAKEMARK_CACHE CARGO_TARGET_DIR VENV

CARGO := cd rust && cargo
PY := PYTHONPATH=$(CURDIR)/python $(VENV)/bin/python
DEBUG := $(CARGO_TARGET_DIR)/debug
ARCH := $(subst x86_64,amd64,$(subst aarch64,arm64,$(shell uname -m)))
MVN := mvn --batch-mode --no-transfer-progress --file spark-plugin/pom.xml -Dlakemark.build.dir=$(LAKEMARK_CACHE)/spark-plugin
PART := .ci/part
# Environments that only tests and benchmarks beside peers need: DuckDB's generators of TPC-H and TPC-DS, and an older Spark.
TPC := $(LAKEMARK_CACHE)/venv-tpc
SPARK35 := $(LAKEMARK_CACHE)/venv-spark-3.5
# The JDBC driver that the server is tested with.
JDBC := $(LAKEMARK_CACHE)/serve-jdbc
# Airflow, whose packages go together with those of nothing else.
AIRFLOW := $(LAKEMARK_CACHE)/venv-airflow
# The tools that build the site, which go together with nothing else.
SITE := $(LAKEMARK_CACHE)/venv-site
# Delta for the line of Spark that tests run on.
DELTA := $(LAKEMARK_CACHE)/delta/$(basename $(SPARK_VERSION))
# Spark's own test suites.
SUITES := $(LAKEMARK_CACHE)/spark-suites/jars-$(SPARK_TESTS_VERSION)
# The browser that shows the page of the server.
CHROMIUM := $(LAKEMARK_CACHE)/chromium
# Tools in Rust that only some verbs need.
TOOLS := $(LAKEMARK_CACHE)/tools
export LAKEMARK_TPC_PYTHON := $(TPC)/bin/python

.PHONY: help setup fmt lint audit test test-core test-python test-spark test-delta test-spark-suites test-sqllogic test-jobs test-browser bench stress fuzz site release try-release demo ci
.PHONY: style benches-built test-rust rust native native-release jar jar-release wheel

help: ## list the verbs
	@grep -hE '^[a-z-]+:[^\#]*\#\# ' $(MAKEFILE_LIST) | awk -F ':[^\#]*\#\# ' '{ printf "  make %-12s %s\n", $$1, $$2 }'

# What one verb can do stands behind ### beside its target.
names = @grep -hE '^$(1)-[a-z-]+:.*\#\#\# ' $(MAKEFILE_LIST) | sed 's/^$(1)-//' | awk -F ':.*\#\#\# ' '{ printf "  make $(1) NAME=%-18s %s\n", $$1, $$2 }'

setup: $(VENV)/.done-$(SPARK_VERSION) ## virtual environment with every pinned Python tool (once; later runs find it ready)

fmt: setup ## format Rust, Python and Java
	$(CARGO) fmt --all
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml
	$(CARGO) fmt --manifest-path sqllogic/Cargo.toml
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix-only .
	$(MVN) spotless:apply

lint: style ## formatting, clippy, ruff, mypy, google-java-format: any finding fails
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings

# The targets of the fuzzer and the runner of DataFusion's suite are workspaces of their own, which --all does not reach.
style: setup
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) fmt --manifest-path sqllogic/Cargo.toml --check
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(MVN) --quiet spotless:check

audit: ## licences, sources and known advisories of the crates that we depend on (cargo-deny; advisories come from the network)
	.ci/tool cargo-deny 0.19.0
	cd rust && $(TOOLS)/bin/cargo-deny --locked --offline check licenses bans sources
	cd rust && $(TOOLS)/bin/cargo-deny --locked check advisories

test: ## every test: Rust, Python, Java, Spark, README
	$(call run_parts,setup build rust-tests python-spark)

test-core: ## the three crates below the query engine; compiles no DataFusion
	$(CARGO) test -p lakemark-format -p lakemark-index -p lakemark-table

test-python: native $(TPC)/.done $(JDBC)/.done ## Python tests, doctests and the README's Python and shell blocks
	$(PY) -m pytest --numprocesses=$(PYTHON_PROCESSES) --dist=loadfile
	$(PY) tests/readme/run.py shell python updates start-shell start-python start-operators indexes recipes

test-spark: native jar ## Java unit tests and the Spark tests on the PySpark of SPARK_VERSION
	$(MVN) --quiet test
	LAKEMARK_SPARK_VERSION=$(SPARK_VERSION) $(PY) -m pytest --numprocesses=$(SPARK_SESSIONS) --dist=loadgroup --no-loadscope-reorder tests/spark
	$(PY) tests/readme/run.py spark start-spark

test-delta: native jar $(DELTA)/.done ## Delta tables under their own names, on the PySpark of SPARK_VERSION (4.1 or 4.2); no part of ci, as it takes minutes
	LAKEMARK_SPARK_VERSION=$(SPARK_VERSION) LAKEMARK_DELTA_JARS=$(DELTA) $(PY) -m pytest tests/delta

test-spark-suites: setup jar $(SUITES)/.done ## [FILES="having.sql ParquetV1Query"] [RUNS="extension connector"] [ONCE=1]: Spark's own suites over folders that are marked; all of it takes hours, ci runs two files
	$(PY) tests/spark_suites/run_suites.py --runs "$(RUNS)" $(if $(ONCE),--once) --jars $(SUITES) \
	  --ours $(LAKEMARK_CACHE)/spark-plugin/lakemark-spark.jar $(LAKEMARK_CACHE)/spark-plugin/test-classes -- $(FILES)

# Its artefacts are apart, as the suite turns on features that nothing of ours has. What the tables are written to syncs all the time.
test-sqllogic: export TMPDIR := $(TEST_FOLDER)
test-sqllogic: export CARGO_TARGET_DIR := $(LAKEMARK_CACHE)/target-sqllogic
test-sqllogic: ## [FILES="joins window.slt"]: DataFusion's own suite over tables of ours, index on and off; no part of ci, as it compiles the engine again
	$(CARGO) test --manifest-path sqllogic/Cargo.toml
	$(CARGO) run --manifest-path sqllogic/Cargo.toml -- $(FILES)

test-jobs: native $(AIRFLOW)/.done ## the DAGs of examples/jobs in the real Airflow; no part of ci, as its environment takes 1 GB
	LAKEMARK_AIRFLOW_PYTHON=$(AIRFLOW)/bin/python $(PY) -m pytest tests/jobs

test-browser: native $(CHROMIUM)/.done ## the pages of `lakemark serve` and of the demo in the real Chromium; no part of ci, as the browser takes 500 MB
	LAKEMARK_CHROMIUM=$(CHROMIUM)/chromium $(PY) -m pytest tests/browser

# The pages of the crates and of the connector are on it if `cargo doc` and `make release` made them before.
site: export LAKEMARK_SITE_RUST = $(wildcard $(CARGO_TARGET_DIR)/doc)
site: export LAKEMARK_SITE_JAVA = $(wildcard $(LAKEMARK_CACHE)/release/spark-plugin/reports/apidocs)
site: $(SITE)/.done ## the site of the documents in LAKEMARK_CACHE/site; a page or a link that leads nowhere fails
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/python -m mkdocs build --config-file site/mkdocs.yml --site-dir $(LAKEMARK_CACHE)/site

release: ## [ARCH=amd64]: what a release publishes, in dist/: wheels, jar, crates, archives, checksums; goes on where it was stopped
	release/build $(if $(filter command line,$(origin ARCH)),$(ARCH))

try-release: ## [SPARK=4.1.4]: installs dist/ into an empty environment, and runs the quick starts there
	release/try $(PYTHON) $(if $(SPARK),--spark $(SPARK))

demo: $(if $(filter release,$(PROFILE)),native-release jar-release,native jar) ## [PROFILE=release] [SMALL=1]: real flights, indexed, asked beside other engines, changed while another process reads; ends with a page
	LAKEMARK_PROFILE=$(PROFILE) $(PY) examples/demo $(if $(SMALL),--small)

bench: ## NAME=… [ROWS=…] [SCALE=1]: a benchmark beside its peers, of a release build; without NAME a list of them
ifeq ($(origin NAME),command line)
	@$(MAKE) --no-print-directory bench-$(NAME)
else
	$(call names,bench)
endif

BENCH = LAKEMARK_PROFILE=release $(PY) benchmarks

# The engines that run beside us.
bench-sqb bench-keys bench-lists bench-key-builds bench-updates bench-sharing: peers
bench-sqb bench-encodings bench-never-worse bench-keys bench-lists bench-key-builds: ROWS ?= 10000000
bench-updates bench-updates-figures bench-updates-spark: ROWS ?= 2000000
bench-zones: ROWS ?= 4194304
bench-pbfilter: ROWS ?= 7000000
bench-joins: ROWS ?= 100000000
bench-links: ROWS ?= 8000000
bench-spark: ROWS ?= 1000000
bench-store: FILES ?= 50000
bench-sharing bench-serve-calls: SCALE = 0.1

bench-sqb: native-release ### the Set Query Benchmark at ROWS=10000000 beside its peers and T*
	$(BENCH)/sqb.py --rows $(ROWS)

bench-encodings: native-release ### bytes, reads and CPU of every bitmap encoding over the same counts at ROWS=10000000
	$(BENCH)/sqb_encodings.py --rows $(ROWS)

bench-never-worse: native-release ### 1,000 random queries with indexes and without, at ROWS=10000000
	$(BENCH)/never_worse.py --rows $(ROWS) --random 1000

bench-keys: native-release ### lookups of single keys, ROWS=10000000 in 10,000 row groups, beside DataFusion, DuckDB and Lance
	$(BENCH)/keys.py --rows $(ROWS) --row-groups 10000

bench-key-builds: native-release ### what indexes over keys take to build at ROWS=10000000 (goals are for 100000000 as well)
	$(BENCH)/keys.py --rows $(ROWS) --row-groups 10000 --builds

bench-lists: native-release ### conditions on elements of lists at ROWS=10000000, beside DataFusion, DuckDB and Lance
	$(BENCH)/lists.py --rows $(ROWS)

bench-links: native-release ### walks over ROWS=8000000 triples, by calls and by SQL, beside DataFusion, DuckDB and Oxigraph
	$(BENCH)/links.py --rows $(ROWS)

bench-zones: native-release ### Bloom-filter trees on ROWS=4194304 tuples of relation R, at every false positive rate
	$(BENCH)/zones.py --rows $(ROWS)

bench-pbfilter: native-release ### summaries that grow to ROWS=7000000 in STEPS=7 appends, beside the model of PBFilter
	$(BENCH)/pbfilter.py --rows $(ROWS) --steps $(STEPS)

bench-tpcds: native-release $(TPC)/.done ### the queries of TPC-DS at SCALE=1, beside DataFusion's own tables and DuckDB
	$(BENCH)/suites.py tpcds --scale $(SCALE)

bench-tpch: native-release $(TPC)/.done ### the same of TPC-H
	$(BENCH)/suites.py tpch --scale $(SCALE)

bench-ssb: native-release $(TPC)/.done ### the same of the Star Schema Benchmark
	$(BENCH)/suites.py ssb --scale $(SCALE)

bench-clicks: native-release $(TPC)/.done ### 43 queries of the shape of ClickBench's, the same way
	$(BENCH)/suites.py clicks --scale $(SCALE)

bench-joins: native-release ### joins of 10,000 and of 1,000,000 keys with ROWS=100000000 rows, the same way
	$(BENCH)/joins.py --rows $(ROWS)

bench-sharing: native-release $(TPC)/.done ### 1 to 256 clients at SCALE=0.1: SSB and TPC-H Q1 with each level of sharing, beside DataFusion and DuckDB
	$(BENCH)/sharing.py --scale $(SCALE)

bench-serve-calls: native-release ### what each call of a query through `lakemark serve` takes at SCALE=0.1, beside the same in process
	$(BENCH)/serve_calls.py --scale $(SCALE)

bench-star-costs: ### what a key, a row to its query and a key into a table cost in a chain of star joins, in nanoseconds
	$(CARGO) test --release --workspace --lib -- --ignored --nocapture costs_of_a_chain

bench-planning: native-release ### plans over 24 tables and over 10,000 files beside DataFusion's own tables
	$(BENCH)/planning.py

bench-store: native-release ### opening, lookups, changes and commits in FILES=50000 files, and the listing beside a bare loop
	$(CARGO) bench --package lakemark-table --bench listing -- $(FILES)
	$(CARGO) bench --package lakemark-table --bench listing -- $(FILES) 1000
	$(BENCH)/store.py --files $(FILES)
	$(CARGO) bench --package lakemark-format --bench growth
	$(BENCH)/store_builds.py

bench-updates: native-release ### scans of ROWS=2000000 with buffered updates, commits, migration, beside delta-rs, Lance and DuckDB
	$(BENCH)/updates.py --rows $(ROWS)

bench-updates-figures: native-release ### the figures of MaSM on ROWS=2000000 (100000000 are its 10 GB), beside rewriting by delta-rs
	$(BENCH)/updates_figures.py --rows $(ROWS)

bench-updates-tpch: native-release $(TPC)/.done ### the queries of TPC-H at SCALE=1 while orders and their lines change
	$(BENCH)/updates_tpch.py --scale $(SCALE)

bench-spark: jar-release $(TPC)/.done ### queries in Spark at ROWS=1000000 SCALE=1, beside Parquet, Delta and Iceberg
	$(call spark_peers,4.1)
	$(BENCH)/spark.py --rows $(ROWS) --scale $(SCALE)

bench-updates-spark: jar-release $(SPARK35)/.done ### scans of ROWS=2000000 in Spark after updates, beside Delta, Iceberg, Hudi and Paimon
	$(call spark_peers,4.1)
	$(call spark_peers,3.5)
	LAKEMARK_SPARK35_PYTHON=$(SPARK35)/bin/python $(BENCH)/updates_spark.py --rows $(ROWS)

.PHONY: peers
peers: setup
	$(VENV)/bin/pip install --quiet --requirement benchmarks/requirements.txt

# The jars of the formats that run beside us, for one version of Spark.
define spark_peers
mvn --batch-mode --quiet --file benchmarks/spark-peers/pom-$(1).xml dependency:copy-dependencies \
  -DincludeGroupIds=io.delta,io.unitycatalog,org.apache.iceberg,org.apache.hudi,org.apache.paimon \
  -DoutputDirectory=$(LAKEMARK_CACHE)/spark-peers/$(1)
endef

stress: ## NAME=…: other writers, crashes, full disks, random changes, for as long as one wants; without NAME a list of them
ifeq ($(origin NAME),command line)
	@$(MAKE) --no-print-directory stress-$(NAME)
else
	$(call names,stress)
endif

# Of the whole workspace, so that what the crate depends on is not built once more.
FAILPOINTS = $(CARGO) test --workspace --features lakemark-table/failpoints

# What tests are told is exported: in front of CARGO, which changes the folder first, it would be told to cd.
stress-crashes stress-schedules stress-model: export TMPDIR := $(TEST_FOLDER)
stress-crashes: export LAKEMARK_CRASH_TRIALS = $(TRIALS)
stress-crashes: export LAKEMARK_POWER_STATES = $(POWER_STATES)
stress-crashes: export LAKEMARK_DISK_STRIDE = $(DISK_STRIDE)
stress-crashes stress-watches: export LAKEMARK_WATCH_KILLS = $(WATCHES)
stress-processes: export LAKEMARK_PROCESSES_SECONDS = $(or $(SECONDS),240)
stress-schedules: export LAKEMARK_SCHEDULES = $(SCHEDULES)
stress-schedules: export LAKEMARK_SCHEDULE_SEED = $(SEED)
stress-schedules: export LAKEMARK_SCHEDULE_ACTORS = $(ACTORS)
stress-schedules: export LAKEMARK_SCHEDULE_WALK = $(WALK)
stress-model: export LAKEMARK_MODEL_OPERATIONS = $(OPERATIONS)
stress-model: export LAKEMARK_MODEL_STATEMENTS = $(STATEMENTS)
stress-model: export LAKEMARK_LINK_GRAPHS = $(GRAPHS)
stress-model: export LAKEMARK_MODEL_SEED = $(or $(SEED),7)
ifdef NEIGHBOURS
stress-model: export LAKEMARK_MODEL_NEIGHBOURS = $(NEIGHBOURS)
endif
stress-readers: export LAKEMARK_READERS_SECONDS = $(or $(SECONDS),300)
stress-serve: export LAKEMARK_SERVE_SECONDS = $(or $(SECONDS),300)
stress-serve: export LAKEMARK_SERVE_QUERIES = $(QUERIES)
stress-neighbours: export LAKEMARK_NEIGHBOURS_OPERATIONS = $(OPERATIONS)
stress-neighbours: export LAKEMARK_NEIGHBOURS_SEED = $(or $(SEED),7)

stress-crashes: setup ### kills a writer TRIALS=120 times, a watch WATCHES=12 times, at random instants and named points, and builds at each step; full and failing disks, power cuts
	$(FAILPOINTS) --test crash --test disk --test builds -- --nocapture

stress-watches: native ### kills `lakemark index watch` WATCHES=12 times at random instants
	$(PY) -m pytest -s tests/python/test_watch.py -k killed

stress-schedules: setup ### SCHEDULES=250 SEED=1 ACTORS=2..4 WALK=12 PROFILE=dev: writers, migrations, vacuums and readers take turns as a seed says, and fail
	$(FAILPOINTS) $(if $(filter release,$(PROFILE)),--release) --test schedules -- --nocapture

stress-processes: setup ### two and four processes move money between accounts of one table for SECONDS=240 in all
	$(CARGO) test -p lakemark-table --test processes -- --nocapture

stress-model: setup ### OPERATIONS=20000 STATEMENTS=1000 GRAPHS=2000 SEED=7 NEIGHBOURS=all: random changes, migrations, others of these classes, SQL, and walks over links, against a map
	$(CARGO) test -p lakemark-table --release --test it updates::model -- --nocapture
	$(CARGO) test -p lakemark-table --release --test it links_random -- --nocapture
	$(CARGO) test --workspace --test it statements -- --nocapture

stress-neighbours: native ### OPERATIONS=20000 SEED=7: delta-rs changes, compacts and restores a table in turn with Lakemark, against a map
	$(PY) -m pytest -s tests/python/test_neighbours.py

stress-readers: native ### four processes count a folder, and then a Delta table, that is published, migrated and vacuumed for SECONDS=300
	$(PY) -m pytest -s tests/python/test_readers.py

stress-serve: native ### clients of the server vanish, stall, crowd, send long statements and change rows for SECONDS=300, while it is killed; QUERIES=100000 short queries
	$(PY) -m pytest -s tests/serve/test_clients.py

stress-spark: native jar ### SCANS=10000 scans that may leak nothing, SECONDS=300 of transfers for each kind of table, ROUNDS=20 of killed tasks
	LAKEMARK_LEAK_SCANS=$(SCANS) LAKEMARK_SOAK_SECONDS=$(or $(SECONDS),300) LAKEMARK_KILL_ROUNDS=$(ROUNDS) \
	  $(PY) -m pytest -s tests/spark/test_leaks.py tests/spark/test_soak.py tests/spark/test_kills.py

# In a copy of what is committed, with the golden files beside it.
MUTANTS := $(LAKEMARK_CACHE)/mutants
stress-mutants: ### SHARD=1/16: changes postings, leaves, keys, row sets and zone searches one place at a time; a test has to notice (cargo-mutants)
	.ci/tool cargo-mutants 27.0.0
	@rm -rf $(MUTANTS)/source
	git clone --quiet . $(MUTANTS)/source
	cd $(MUTANTS)/source/rust && PATH=$(TOOLS)/bin:$$PATH CARGO_TARGET_DIR=$(MUTANTS)/target CARGO_INCREMENTAL=1 \
	  cargo mutants --in-place --no-shuffle --shard $(SHARD) --output $(MUTANTS)

stress-spark-versions: setup ### the Spark tests on every supported PySpark, each in an environment of its own, and those of Delta where it has a release
	for version in $(SPARK_VERSIONS); do \
	  delta=$$(case $$version in (4.[12].*) echo test-delta;; esac); \
	  $(MAKE) --no-print-directory VENV=$(LAKEMARK_CACHE)/venv-spark-$$version SPARK_VERSION=$$version test-spark $$delta; \
	done

fuzz: ## NAME=…: random queries and random bytes; without NAME a list of them
ifeq ($(origin NAME),command line)
	@$(MAKE) --no-print-directory fuzz-$(NAME)
else
	$(call names,fuzz)
endif

FUZZ_QUERIES = $(CARGO_TARGET_DIR)/$(if $(filter release,$(PROFILE)),release,debug)/examples/fuzz-queries
JUDGED_FOLDER = $(LAKEMARK_CACHE)/judged

.PHONY: fuzz-queries-built
fuzz-queries-built:
	$(CARGO) build --workspace $(if $(filter release,$(PROFILE)),--release) --example fuzz-queries

fuzz-queries: fuzz-queries-built ### N=10000 JOINS=500 SEED=1 PROFILE=dev: random predicates, walks over links and joins; indexes on must equal indexes off, and tables in memory
	$(if $(JOIN),,$(FUZZ_QUERIES) $(N) $(SEED) $(TRIAL))
	$(if $(TRIAL),,$(FUZZ_QUERIES) joins $(JOINS) $(SEED) $(JOIN))

fuzz-duckdb: fuzz-queries-built setup ### JUDGED=250 SEED=1: random statements over several tables, with DuckDB's answers
	@rm -rf $(JUDGED_FOLDER)
	$(FUZZ_QUERIES) write $(JUDGED_FOLDER) $(JUDGED) $(SEED)
	$(PY) tests/python/differential_duckdb.py $(JUDGED_FOLDER)

fuzz-spark: native jar ### TABLES=100 SEED=1: random statements over random tables in Spark; our answers must equal those of its own scan
	LAKEMARK_SPARK_TABLES=$(TABLES) LAKEMARK_SPARK_SEED=$(SEED) $(PY) -m pytest tests/spark/test_differential.py

fuzz-decoders: setup ### the decoders against mutated bytes, SECONDS=5 each (cargo-fuzz is installed into the cache at first)
	rust/fuzz/smoke $(or $(SECONDS),5)

fuzz-handles: export PROPTEST_CASES = $(CASES)
fuzz-handles: setup ### CASES=20000: tickets, handles and commands that were changed on their way to a server
	$(CARGO) test --workspace --test it forged
	$(CARGO) test --workspace --lib handles_are_a_map

# CI has our crates compiled by clippy's driver, which is the compiler with its lints. `cargo clippy` would check everything that they depend
# on besides, which takes as long as to compile it.
ci: export RUSTC_WORKSPACE_WRAPPER := clippy-driver
# What incremental compilation keeps is for the next build, and CI has none.
ci: export CARGO_INCREMENTAL := 0
ci: export CLIPPY_ARGS := -D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
ci: ## what CI runs: lint, site, build, every test, random queries, fuzz smoke, crashes, schedules; prints how long each part took
	$(call run_parts,setup style site build benches rust-tests python-spark spark-suites fuzz-queries fuzz-decoders crashes schedules)

# ---- the parts of `test` and `ci`: each stands here once ---------------------------------------------------------

# Runs parts one after the other, and prints how long each took.
define run_parts
@rm -f $(LAKEMARK_CACHE)/parts
@+for part in $(1); do $(PART) $$part $(MAKE) --no-print-directory part-$$part; done
@$(PART) --summary $@
endef

.PHONY: part-setup part-style part-site part-build part-benches part-rust-tests part-python-spark part-spark-suites part-fuzz-queries part-fuzz-decoders \
  part-crashes part-schedules
# What tests download comes first: two Mavens at once would write into one local repository, and the tests of a part begin together.
part-setup: setup $(TPC)/.done $(JDBC)/.done $(SUITES)/.done
part-style: style
part-site: site
part-build: native jar
part-benches: benches-built
part-rust-tests: test-rust
# The tests in Python keep one core busy and those in Spark little more: both at once, with what was built before.
part-python-spark:
	$(MAKE) --no-print-directory --jobs=2 -o native -o jar test-python test-spark
part-spark-suites:
	$(MAKE) --no-print-directory -o setup -o jar test-spark-suites FILES="having.sql postgreSQL/select_having.sql" RUNS=connector
part-fuzz-queries: fuzz-queries fuzz-duckdb
part-fuzz-decoders: fuzz-decoders
part-crashes: stress-crashes
part-schedules:
	$(MAKE) --no-print-directory stress-schedules SCHEDULES=150 WALK=10

# ---- parts that the verbs share ----------------------------------------------------------------------------------

.PHONY: test-rust
test-rust:
	$(CARGO) test --workspace

rust:
	$(CARGO) build --workspace

benches-built:
	$(CARGO) build --workspace --benches

# The libraries that cargo built go where Python and the jar look for them; maturin is for wheels only. install(1) makes a
# new inode, so that a process that has the old library open keeps it.
native: rust setup
	install -D -m 755 $(DEBUG)/liblakemark_python.so python/lakemark/_internal.abi3.so

native-release: setup
	$(CARGO) build --workspace --release
	install -D -m 755 $(CARGO_TARGET_DIR)/release/liblakemark_python.so python/lakemark/_internal.abi3.so

jar: rust
jar-release: native-release
jar jar-release:
	install -D -m 755 $(CARGO_TARGET_DIR)/$(if $(filter jar,$@),debug,release)/liblakemark_jni.so $(LAKEMARK_CACHE)/native/linux/$(ARCH)/liblakemark_jni.so
	$(MVN) --quiet -DskipTests -Dlakemark.native.dir=$(LAKEMARK_CACHE)/native package
	install -D -m 644 $(LAKEMARK_CACHE)/spark-plugin/lakemark-spark.jar python/lakemark/jars/lakemark-spark.jar

# Wheels for this machine: one with shell and library, one with the Spark jar. maturin takes what cargo compiled
# (.cargo/config.toml says how) and links it without symbols. What is given away comes from `make release`.
WHEEL_PROFILE ?= dev
wheel: native jar
	$(VENV)/bin/maturin build --profile $(WHEEL_PROFILE) --out dist
	$(VENV)/bin/python release/jar_wheel.py $(LAKEMARK_CACHE)/spark-plugin/lakemark-spark.jar dist

# Made again when the list of tools changes, and once per version of Spark.
$(VENV)/.done-$(SPARK_VERSION): pyproject.toml .ci/setup
	.ci/setup $(PYTHON) $(VENV) $(SPARK_VERSION)
	touch $@

$(TPC)/.done: benchmarks/tpc-requirements.txt
	[ -x $(TPC)/bin/python ] || $(PYTHON) -m venv $(TPC)
	$(TPC)/bin/pip install --quiet --requirement benchmarks/tpc-requirements.txt
	touch $@

$(SITE)/.done: site/requirements.txt
	[ -x $(SITE)/bin/python ] || $(PYTHON) -m venv $(SITE)
	$(SITE)/bin/pip install --quiet --disable-pip-version-check --requirement site/requirements.txt
	touch $@

$(JDBC)/.done: tests/serve/jdbc/pom.xml
	mvn --batch-mode --quiet --file $< dependency:copy-dependencies -DoutputDirectory=$(JDBC)
	touch $@

$(DELTA)/.done: tests/delta/pom.xml
	mvn --batch-mode --quiet --file $< -Dspark.line=$(basename $(SPARK_VERSION)) dependency:copy-dependencies \
	  -DincludeGroupIds=io.delta,io.unitycatalog -DoutputDirectory=$(DELTA)
	touch $@

# Spark and Scala's library are those of PySpark.
$(SUITES)/.done: tests/spark_suites/pom.xml
	mvn --batch-mode --quiet --file $< -Dspark.tests=$(SPARK_TESTS_VERSION) dependency:copy-dependencies \
	  -DexcludeGroupIds=org.scala-lang,org.scala-lang.modules -DoutputDirectory=$(SUITES)
	touch $@

$(AIRFLOW)/.done: examples/jobs/airflow/requirements.txt
	[ -x $(AIRFLOW)/bin/python ] || $(PYTHON) -m venv $(AIRFLOW)
	$(AIRFLOW)/bin/pip install --quiet --requirement examples/jobs/airflow/requirements.txt
	touch $@

$(CHROMIUM)/.done: .ci/chromium
	.ci/chromium $(CHROMIUM)
	touch $@

$(SPARK35)/.done: benchmarks/spark35-requirements.txt
	[ -x $(SPARK35)/bin/python ] || $(PYTHON) -m venv $(SPARK35)
	$(SPARK35)/bin/pip install --quiet --requirement benchmarks/spark35-requirements.txt
	touch $@
