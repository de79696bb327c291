#!/usr/bin/env bash
# Everything CI runs, in the order in which it fails fastest.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }

step "what the tests need"
bash scripts/prepare.sh

step "formatting"
cargo fmt --all --check

step "lints"
cargo clippy --workspace --all-targets -- -D warnings

step "the library with each engine alone"
cargo check --quiet -p ensue
cargo check --quiet -p ensue --no-default-features --features postgres

step "applications that use sqlx can depend on ensue"
bash scripts/check-sqlx.sh

step "tests, with one private Postgres for the whole run"
cargo build --workspace --all-targets
cargo run --quiet -p ensue-conformance --bin with-postgres -- cargo test --workspace --no-fail-fast

step "rustdoc"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

step "all passed"
