#!/usr/bin/env bash
# Generates clients from a server's OpenAPI description and lets each publish, read, claim and complete.
#   run.sh URL WORK CACHE
# Tools are installed once into CACHE, in the versions of requirements.txt and package.json. WORK is for this run alone.
set -euo pipefail
url=$1 work=$2 cache=$3
here=$(cd "$(dirname "$0")" && pwd)

mkdir -p "$work" "$cache"
versions=$(cat "$here/requirements.txt" "$here/package.json" | sha256sum | cut -c1-16)
tools="$cache/$versions"
(
    # Two runs at once install once.
    flock 9
    if [ ! -e "$tools/ready" ]; then
        rm -rf "$tools"
        python3 -m venv "$tools/python"
        "$tools/python/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
        mkdir "$tools/node"
        cp "$here/package.json" "$tools/node/"
        (cd "$tools/node" && npm install --silent --no-audit --no-fund --no-package-lock)
        touch "$tools/ready"
    fi
) 9>"$cache/lock"
PATH="$tools/python/bin:$tools/node/node_modules/.bin:$PATH"

cp "$here"/*.py "$here"/*.ts "$work/"
cd "$work"
python -c 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1]).read().decode())' \
    "$url/openapi.json" >openapi.json

echo "== openapi-python-client"
echo 'post_hooks: []' >config.yaml
openapi-python-client generate --path openapi.json --output-path ensue_client --meta none --config config.yaml \
    >openapi-python-client.log 2>&1 || { cat openapi-python-client.log; exit 1; }
python attrs_client.py "$url"

echo "== openapi-generator"
openapi-generator-cli generate -i openapi.json -g python -o generated --additional-properties=packageName=ensue_api \
    >openapi-generator.log 2>&1 || { cat openapi-generator.log; exit 1; }
PYTHONPATH=generated python pydantic_client.py "$url"

echo "== openapi-typescript"
ln -sfn "$tools/node/node_modules" node_modules
cp "$here/package.json" .
openapi-typescript openapi.json -o ensue.d.ts >openapi-typescript.log 2>&1 || { cat openapi-typescript.log; exit 1; }
tsc --strict --skipLibCheck --target es2022 --module nodenext fetch_client.ts
node fetch_client.js "$url"

echo "== CloudEvents SDK"
python cloudevents_sdk.py "$url"
