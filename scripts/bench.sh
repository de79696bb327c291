#!/usr/bin/env bash
# All benchmarks, each beside the raw limit measured in the same run.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/prepare.sh
cargo build --release
cargo build --release -p ensue-conformance --bin with-postgres
ensue=target/release/ensue

"$ensue" bench append
target/release/with-postgres bash -c "$ensue bench append --store \"\$ENSUE_TEST_POSTGRES\""
"$ensue" bench http
"$ensue" bench match
"$ensue" bench streams
"$ensue" bench flow
target/release/with-postgres bash -c "$ensue bench flow --store \"\$ENSUE_TEST_POSTGRES\""
"$ensue" bench jobs
target/release/with-postgres bash -c "$ensue bench jobs --store \"\$ENSUE_TEST_POSTGRES\""
target/release/with-postgres bash -c "$ensue bench outbox --store \"\$ENSUE_TEST_POSTGRES\""
target/release/with-postgres bash -c "$ensue bench peers --store \"\$ENSUE_TEST_POSTGRES\""
target/release/with-postgres bash -c "$ensue bench snapshot --store \"\$ENSUE_TEST_POSTGRES\""
"$ensue" bench read --events "$1"
target/release/with-postgres bash -c "$ensue bench read --events $1 --store \"\$ENSUE_TEST_POSTGRES\""
