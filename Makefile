# `make test` is exactly what CI runs.
.DEFAULT_GOAL := help
KILLS ?= 1000
BENCH_EVENTS ?= 10000000
CASES ?= 5000

.PHONY: help run test check bench crash failover nodes races compare pooler years versions

help: ## Shows what there is
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

run: ## Starts the server: embedded store in ./ensue.db, http://127.0.0.1:4747
	cargo run --release -- serve

test: ## Installs and starts what the tests need, runs everything CI runs
	bash scripts/test.sh

check: ## Formatting and lints only: quick, before a commit
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

bench: ## Prints figures beside the raw limits of the same run: append, http, match, streams, flow, jobs, outbox, peers, snapshot, read
	bash scripts/bench.sh $(BENCH_EVENTS)

crash: ## The long crash campaign: KILLS=1000 times kill -9, on both engines
	bash scripts/prepare.sh
	ENSUE_KILLS=$(KILLS) cargo run --quiet -p ensue-conformance --bin with-postgres -- \
		cargo test -p ensue-server --test crash -- --nocapture --test-threads 1

failover: ## A primary killed and its asynchronous standby promoted, 20 times: everything on it is handled
	bash scripts/prepare.sh
	ENSUE_FAILOVERS=20 cargo test --workspace --features ensue/sqlx --test bus -- --nocapture failover_standby

nodes: ## The long campaigns of many nodes: one of three killed 60 times, every 5 s; Postgres itself killed 20 times
	bash scripts/prepare.sh
	ENSUE_NODE_KILLS=60 ENSUE_NODE_KILL_EVERY_MS=5000 ENSUE_POSTGRES_KILLS=20 cargo run --quiet -p ensue-conformance --bin with-postgres -- \
		cargo test -p ensue-server --test crash -- --nocapture --test-threads 1 nodes postgres_is_killed

pooler: ## The whole conformance suite through PgBouncer in transaction mode
	bash scripts/prepare.sh
	ENSUE_TEST_BOUNCER=all cargo run --quiet -p ensue-conformance --bin with-postgres -- \
		cargo test -p ensue-stores --all-features --test postgres -- --nocapture bouncer

races: ## The long campaigns about jobs: 100 freezes, 1,000 pauses, 100,000 held, 200,000 subscriptions
	bash scripts/prepare.sh
	ENSUE_FREEZES=100 ENSUE_PAUSE_RACES=1000 ENSUE_HELD=100000 cargo run --quiet -p ensue-conformance --bin with-postgres -- \
		cargo test -p ensue --all-features --test jobs -- --nocapture freeze rules::nothing_starts rules::a_resume
	ENSUE_SUBSCRIPTIONS=200000 cargo run --quiet -p ensue-conformance --bin with-postgres -- \
		cargo test -p ensue-stores --all-features --test postgres many_subscriptions
	cargo test -p ensue-server --test http -- --ignored two_hundred_thousand

versions: ## The tests that need Postgres on 14 to 18, each fetched by npm (VERSIONS='14 18': on those only); that 13 is refused
	bash scripts/postgres-versions.sh $(VERSIONS)

years: ## Fire times of ten years in fifty zones beside every minute of their clocks (minutes)
	ENSUE_TEST_LONG=1 cargo test -p ensue-core --test schedules -- --nocapture

compare: ## Engines beside the model on random calls that nobody has tried: CASES=5000 of each kind
	bash scripts/prepare.sh
	ENSUE_TEST_SEED=random ENSUE_TEST_CASES=$(CASES) cargo run --quiet -p ensue-conformance --bin with-postgres -- \
		cargo test -p ensue-stores --all-features --test sqlite --test postgres random
