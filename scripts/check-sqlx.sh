#!/usr/bin/env bash
# Only one crate of a dependency graph may link SQLite. An application with sqlx 0.9 must resolve beside `ensue` as it
# is and with its feature `sqlx`, one with sqlx 0.8 beside `ensue` without its `sqlite` feature.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT

resolves() { # NAME SQLX-VERSION ENSUE-OPTIONS
    mkdir -p "$folder/$1/src"
    echo 'fn main() {}' >"$folder/$1/src/main.rs"
    cat >"$folder/$1/Cargo.toml" <<TOML
[package]
name = "$1"
version = "0.0.0"
edition = "2024"
[workspace]
[dependencies]
sqlx = { version = "$2", features = ["postgres", "sqlite", "runtime-tokio"] }
ensue = { path = "$root/crates/ensue"$3 }
TOML
    if ! cargo generate-lockfile --quiet --manifest-path "$folder/$1/Cargo.toml"; then
        echo "an application with sqlx $2 no longer resolves beside ensue" >&2
        return 1
    fi
    echo "sqlx $2 resolves beside ensue"
}

resolves app-sqlx-09 0.9 ''
resolves app-sqlx-09-feature 0.9 ', features = ["sqlx"]'
resolves app-sqlx-08 0.8 ', default-features = false, features = ["postgres"]'
