#!/usr/bin/env bash
# Installs what the tests need and this machine lacks: a C compiler, the server programs of
# PostgreSQL, PgBouncer, openssl, curl, Chromium, and for generated clients Python with venv, Node
# and a Java runtime.
set -euo pipefail

has_postgres() {
    command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1
}

has_pgbouncer() {
    command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ]
}

missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v openssl >/dev/null || missing+=(openssl)
command -v curl >/dev/null || missing+=(curl)
command -v chromium >/dev/null || missing+=(chromium)
has_postgres || missing+=(postgresql)
has_pgbouncer || missing+=(pgbouncer)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv)
command -v npm >/dev/null || missing+=(nodejs npm)
command -v java >/dev/null || missing+=(default-jre-headless)
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
    echo "please install: ${missing[*]} (this script knows apt-get only)" >&2
    exit 1
fi
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
echo "installing: ${missing[*]}"
"${sudo[@]}" apt-get update -qq
# Only the programs are wanted, not a running cluster or pooler: tests start private servers.
"${sudo[@]}" mkdir -p /etc/postgresql-common
[ -e /etc/postgresql-common/createcluster.conf ] ||
    echo 'create_main_cluster = false' | "${sudo[@]}" tee /etc/postgresql-common/createcluster.conf >/dev/null
if ! has_pgbouncer && [ -d /run/systemd/system ]; then
    "${sudo[@]}" ln -sfn /dev/null /etc/systemd/system/pgbouncer.service
fi
# What is installed is not started either: Debian's scripts ask this program first.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
    "${sudo[@]}" chmod 755 "$policy"
    trap '"${sudo[@]}" rm -f "$policy"' EXIT
fi
DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
