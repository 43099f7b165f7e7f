# `make help` lists what there is; each target is one command line that can be run by hand as well.
PYTHON := .venv/bin/python
ARGS ?=
# A setup that was killed may have left an environment in which nothing of ours runs.
READY := $(PYTHON) -c 'import psycopg, redis, supervisor' 2>/dev/null
NOT_READY := echo "nothing can be told or ended: there is no whole .venv here; if something runs, \`make setup\` first"

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*\#\#.*/\1/p' $(MAKEFILE_LIST))

help: ## show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

setup: ## install and build what is missing (as root: Debian packages too)
	@scripts/setup.sh

demo: ## one patch series from mail to verdict, on the running service (ARGS=--once ends there, ARGS=--lab: a simulated site to browse)
	@scripts/setup.sh
	@$(PYTHON) -m demo $(ARGS)

demo-bisect: ## six patches of which one makes the difference, from mail to the culprit on virtual machines
	@scripts/setup.sh
	@$(PYTHON) -m demo --once --series split $(ARGS)

stop: ## end the service, its PostgreSQL and its Redis
	@if $(READY); then $(PYTHON) -m scripts.stack down; else $(NOT_READY); fi

status: ## say what runs
	@if $(READY); then $(PYTHON) -m scripts.stack status || true; else $(NOT_READY); fi

test: ## gates and all tests (ARGS="tests/lab -k lease": only these tests)
	@scripts/setup.sh --test
	@$(PYTHON) -m scripts.run_tests $(ARGS)

check: ## the fast part of it: gates, and every test that boots nothing
	@scripts/setup.sh --test
	@$(PYTHON) -m scripts.run_tests --fast $(ARGS)

coverage: ## gates and all tests, and which lines no test runs
	@scripts/setup.sh --test
	@$(PYTHON) -m scripts.run_tests --coverage $(ARGS)

lint: ## only the gates: format, lint, templates, contracts, migrations, types
	@scripts/setup.sh --test
	@$(PYTHON) -m scripts.run_tests --gates-only

openapi: ## write docs/api/openapi.json as the code describes the API now; the tests compare the two
	@$(PYTHON) -m scripts.openapi

bench: ## figures of the statistics beside their bars and other methods (ARGS=--no-peers)
	@scripts/setup.sh
	@nice $(PYTHON) -m bench.statistics $(ARGS)

bench-validation: ## change points on unseen data: constants, parts, thresholds, real histories by cross-validation
	@scripts/setup.sh
	@nice $(PYTHON) -m bench.statistics.validation $(ARGS)

bench-agent: ## what the agent costs while a case runs, beside its limits
	@scripts/setup.sh
	@PYTHONPATH=.:agents $(PYTHON) -m bench.sandbox.agent $(ARGS)

bench-mail: ## speed of reading mails beside its limit (ARGS="--patchwork DIR --b4": and beside others; --memory)
	@scripts/setup.sh
	@nice $(PYTHON) -m bench.mail $(ARGS)

bench-reports: ## how fast mails about findings are composed, beside the bar
	@scripts/setup.sh
	@nice $(PYTHON) -m bench.scratch_database bench.mail.composing $(ARGS)

bench-hostile: ## what mails made to cost time or memory cost
	@scripts/setup.sh
	@nice $(PYTHON) -m bench.mail.hostile $(ARGS)

bench-archive: ## a real list archive, watched while it is killed and changed, beside one clean run
	@scripts/setup.sh
	@nice $(PYTHON) -m bench.archive $(ARGS)

bench-trees: ## what polling twenty trees costs, beside its limit
	@scripts/setup.sh
	@nice $(PYTHON) -m bench.archive.trees $(ARGS)

bench-bases: ## how often the base of a series is found in real kernel history, beside its bar
	@scripts/setup.sh
	@nice $(PYTHON) -m bench.bases $(ARGS)

bench-builds: ## what kernels cost to build, cold and patch by patch, for two architectures (ARGS="--warm --no-clang": sooner)
	@scripts/setup.sh --test
	@PYTHONPATH=.:agents nice $(PYTHON) -m bench.builds.costs $(ARGS)

bench-sandbox: ## what builds that try to escape, or to take the host down, come to
	@scripts/setup.sh
	@PYTHONPATH=.:agents nice $(PYTHON) -m bench.sandbox $(ARGS)

bench-poison: ## whether a hostile series can change the kernels of others: builds in turn (ARGS="--rounds N")
	@scripts/setup.sh
	@PYTHONPATH=.:agents nice $(PYTHON) -m bench.builds.poison $(ARGS)

bench-dispatch: ## what dispatching 500 sessions over 40 machines costs Jenkins and the service, beside its bars
	@scripts/setup.sh --test
	@PYTHONPATH=.:agents $(PYTHON) -m bench.dispatch $(ARGS)

bench-faults: ## every state of builds and sessions against every fault, again and again (ARGS="--rounds N --seed N")
	@scripts/setup.sh --test
	@PYTHONPATH=.:agents $(PYTHON) -m bench.dispatch.faults $(ARGS)

bench-pull: ## 2000 hosts that ask for work: what they cost the service, and how soon they have it (ARGS="HOSTS IDLE_SECONDS WITHIN": WITHIN 0, all come at once)
	@scripts/setup.sh --test
	@TIDEMARK_LOG_LEVEL=ERROR PYTHONPATH=.:agents $(PYTHON) -m bench.scratch_database bench.dispatch.pulling $(ARGS)

bench-slow-clients: ## how long others wait while 500 clients trickle heads, bodies and forms (ARGS=--threaded: the same of threads)
	@scripts/setup.sh
	@$(PYTHON) -m bench.dispatch.slow_clients $(ARGS)

bench-detection: ## what a new point costs on long timelines, and judging 2000 cells, beside their bars
	@scripts/setup.sh --test
	@PYTHONPATH=.:agents nice $(PYTHON) -m bench.scratch_database bench.history.detection $(ARGS)

bench-scans: ## what requests and sweeps read at one year of history and at ten (ARGS="--year 2000 --all")
	@scripts/setup.sh
	@PYTHONPATH=.:agents nice $(PYTHON) -m bench.scratch_database bench.history.scans $(ARGS)

bench-ingest: ## queries, CPU and bytes of results that agents upload, beside their limits (ARGS=--profile: where it is spent; --growth: ten years)
	@scripts/setup.sh
	@PYTHONPATH=.:agents nice $(PYTHON) -m bench.ingest $(ARGS)

bench-api: ## what every page and answer costs on a site of five years, beside its bars (ARGS="--values 0.5 5 50": millions)
	@scripts/setup.sh
	@PYTHONPATH=.:agents nice $(PYTHON) -m bench.api $(ARGS)

bench-walk: ## every page of a site that runs in Chromium: axe, console, layout, hosts (ARGS="--site http://127.0.0.1:8000 --most 3")
	@PYTHONPATH=. nice $(PYTHON) -m bench.dashboard.walk $(ARGS)

bench-dashboard: ## what every page costs on that site, and the large pictures in Chromium (ARGS="--only finding --no-pictures")
	@scripts/setup.sh --test
	@PYTHONPATH=.:agents nice $(PYTHON) -m bench.dashboard $(ARGS)

fuzz-api: ## 20000 questions drawn from the description of the API, asked of the real web server (ARGS="--seed N")
	@scripts/setup.sh --test
	@PYTHONPATH=.:agents nice $(PYTHON) -m bench.api --fuzz $(ARGS)

bench-replay: ## published cases through the real API by a simulated fleet (ARGS="--rates 200": error rates; "--faults 30": under fire)
	@scripts/setup.sh
	@PYTHONPATH=.:agents nice $(PYTHON) -m bench.replay $(ARGS)

bench-history: ## 300 revisions on 6 simulated machines: what is found of 12 changes, at which machine time (ARGS="--seed N")
	@scripts/setup.sh
	@PYTHONPATH=.:agents nice $(PYTHON) -m bench.fleet_history $(ARGS)

fuzz: ## 200000 spoiled mails, read and stored (ARGS="--seed N": the same ones again)
	@scripts/setup.sh
	@nice $(PYTHON) -m bench.mail.fuzz $(ARGS)

fuzz-commands: ## 10000 honest and hostile answers to our mails: who is obeyed (ARGS="COUNT SEED")
	@scripts/setup.sh
	@TIDEMARK_LOG_LEVEL=CRITICAL nice $(PYTHON) -m bench.scratch_database bench.mail.fuzz_commands $(ARGS)

e2e-jenkins: ## the whole way through a real controller: JENKINS_URL=... JENKINS_USER=... JENKINS_TOKEN_FILE=...
	@scripts/setup.sh
	@$(PYTHON) -m scripts.e2e_jenkins $(ARGS)

e2e-pull: ## the demo in a lab without a controller: six hosts, enrolled by codes, ask for their work (ARGS=--fresh: from nothing)
	@scripts/setup.sh
	@$(PYTHON) -m demo --once --pull $(ARGS)

e2e-flush: ## the demo while Redis is emptied every 20 seconds: the same end
	@scripts/setup.sh
	@$(PYTHON) -m demo --once --fresh --flush 20 $(ARGS)

e2e-mail: ## reports through a private postfix, their bounces, and the thread as public-inbox and b4 see it (as root)
	@scripts/setup.sh --test
	@B4=$$($(PYTHON) -c "from bench.kit import environment_of as made; print(made('b4==0.16.0').removesuffix('python') + 'b4')") \
		$(PYTHON) -m scripts.run_tests tests/e2e/test_mail_server.py $(ARGS)

e2e-compose: ## docker-compose.yml for real, with base images made here: a series to its verdict, every service restarted (as root)
	@scripts/setup.sh
	@$(PYTHON) -m scripts.e2e_compose $(ARGS)

e2e-newcomer: ## the quick start of the README in a bare Debian, as root and as a user with sudo (as root; ARGS="--user sudo")
	@scripts/e2e_newcomer.sh $(ARGS)

pins: ## name the images of docker-compose.yml by their digests, in .env
	@scripts/setup.sh
	@$(PYTHON) -m scripts.pins $(ARGS)

audit: ## known holes in the Python and npm packages that are pinned (docs/operations/audit.md has the exceptions)
	@scripts/setup.sh --test
	@$(PYTHON) -m scripts.audit

bench-idle: ## memory of all processes of the service while it has nothing to do, beside its bar
	@scripts/setup.sh
	@$(PYTHON) -m bench.idle $(ARGS)

e2e-s3: ## the tests of the store of artifacts on a real S3 server, which Go builds here
	@scripts/setup.sh --test
	@scripts/e2e_s3.sh $(ARGS)

e2e-upgrade: ## the database of the last tag becomes one of this version, beside readers and writers (ARGS=TAG: of another)
	@scripts/setup.sh --test
	@$(PYTHON) -m scripts.e2e_upgrade $(ARGS)

bench-outbox: ## a Celery worker killed 100 times while it sends, and what the mail server got (ARGS="--kills N --seed N --whole 1")
	@scripts/setup.sh
	@PYTHONPATH=.:agents nice $(PYTHON) -m bench.scratch_database bench.outbox $(ARGS)

chaos: ## the whole system under load while its parts are killed, frozen, restarted, filled and cut off (ARGS="--minutes 20 --seed 1")
	@scripts/setup.sh
	@PYTHONPATH=.:agents $(PYTHON) -m bench.chaos $(ARGS)

bench-month: ## 30 days of a lab of 20 machines in some 15 minutes: what of memory, connections, files and rows grows (ARGS="--days 3")
	@scripts/setup.sh
	@PYTHONPATH=.:agents $(PYTHON) -m bench.month $(ARGS)

format: ## put Python files and templates in order
	@scripts/setup.sh --test
	@.venv/bin/ruff check --fix --exit-zero --quiet .
	@.venv/bin/ruff format --quiet .
	@.venv/bin/djlint --reformat --quiet templates || true

lock: ## write the requirements files anew from pyproject.toml
	@scripts/lock.sh

clean: ## remove all that setup and the service made, their data too; keeps .cache
	@if $(READY); then TIDEMARK_LOCAL=.local/test $(PYTHON) -m scripts.stack remove; $(PYTHON) -m scripts.stack remove || true; fi
	rm -rf .local .venv node_modules staticfiles .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage

clean-cache: ## remove downloaded sources and compiler caches
	rm -rf .cache
