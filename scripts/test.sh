#!/usr/bin/env bash
# Everything CI runs, in the order in which it fails fastest.
set -euo pipefail
# Nothing here is built twice: what would help the next build only takes room.
export CARGO_INCREMENTAL=0
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }

step "what the tests need"
bash scripts/prepare.sh

step "may tests mount a small file system?"
source scripts/may-mount.sh

step "formatting"
cargo fmt --all --check

step "lints"
cargo clippy --workspace --all-targets -- -D warnings

step "the library with each engine alone"
cargo clippy --quiet -p ensue -- -D warnings
cargo clippy --quiet -p ensue --no-default-features --features postgres -- -D warnings

step "applications that use sqlx can depend on ensue"
bash scripts/check-sqlx.sh

step "tests, with one private Postgres for the whole run"
# As the tests are built below, so that nothing is built twice.
cargo test --workspace --features ensue/sqlx --no-run
# Tests end processes, not the machine: their Postgres need not wait for the disk. Many of them wait for something else than a core.
export RUST_TEST_THREADS=$(($(nproc) * 2))
# Not by `cargo run`: what it sets for its program would have the tests' cargo build half of this again.
"${CARGO_TARGET_DIR:-target}/debug/with-postgres" --no-fsync cargo test --workspace --features ensue/sqlx --no-fail-fast

step "rustdoc"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

step "all passed"
