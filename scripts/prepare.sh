#!/usr/bin/env bash
# Installs what the tests need and this machine lacks: a C compiler, Postgres' server programs, openssl.
set -euo pipefail

has_postgres() {
    command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1
}

missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v openssl >/dev/null || missing+=(openssl)
has_postgres || missing+=(postgresql)
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
    echo "please install: ${missing[*]} (this script knows apt-get only)" >&2
    exit 1
fi
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
echo "installing: ${missing[*]}"
"${sudo[@]}" apt-get update -qq
# Only the programs are wanted, not a running cluster: tests start private servers.
"${sudo[@]}" mkdir -p /etc/postgresql-common
[ -e /etc/postgresql-common/createcluster.conf ] ||
    echo 'create_main_cluster = false' | "${sudo[@]}" tee /etc/postgresql-common/createcluster.conf >/dev/null
DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
