#!/usr/bin/env bash
# Runs the tests and examples of the libraries in clients/, and the examples of the documents. Libraries of others are
# fetched into the build folder, not into the system; a language whose tools or libraries are not there is left out, loudly.
#
#   tests/interop/clients.sh [LANGUAGE...]   go, python, javascript, action, documents (all)
#
#   PINTLE   the binary to test (built when not given)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# shellcheck source=tests/smoke/server.sh
. "$here/../smoke/server.sh"

clients=$repository/clients
unpacked=${CARGO_TARGET_DIR:-$repository/target}/interop
python_packages=(kubernetes==26.1.0 pytest==8.3.4)
left_out() {
  say "######################################################################"
  say "## LEFT OUT: the $1 library has NOT been run: $2"
  say "######################################################################"
}

run_go() {
  command -v go >/dev/null || { left_out Go "there is no go"; return 0; }
  (cd "$clients/go" && go vet ./... && go test -count=1 ./...) || return 1
  cd "$clients/go/example"
  timeout 300 go mod download >"$scratch/go.log" 2>&1 ||
    { left_out Go "modules of the example cannot be had ($(tail -n 1 "$scratch/go.log"))"; return 0; }
  go vet ./... && go test -count=1 ./...
}

run_python() {
  command -v python3 >/dev/null || { left_out Python "there is no python3"; return 0; }
  local source=$clients/python/src
  # nothing is written beside the sources
  export PYTHONDONTWRITEBYTECODE=1
  (cd "$clients/python/tests" && PYTHONPATH=$source python3 -m unittest) || return 1
  local folder=$unpacked/python-example-${python_packages[*]/#*==/}
  folder=${folder// /-}
  if [ ! -e "$folder/ready" ]; then
    rm -rf "$folder" && mkdir -p "$folder"
    python3 -m venv "$folder/venv" >"$folder/log" 2>&1 || { left_out Python "python3 has no venv"; return 0; }
    timeout 120 "$folder/venv/bin/pip" install --quiet --retries 1 --timeout 20 "${python_packages[@]}" >>"$folder/log" 2>&1 ||
      { left_out Python "${python_packages[*]} cannot be had ($(tail -n 1 "$folder/log"))"; return 0; }
    touch "$folder/ready"
  fi
  (cd "$clients/python/example" && PYTHONPATH=$source "$folder/venv/bin/python" -m pytest -q -p no:cacheprovider .)
}

run_javascript() {
  command -v node >/dev/null && command -v npm >/dev/null || { left_out JavaScript "there is no node and npm"; return 0; }
  [ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ] || { left_out JavaScript "node is older than 20"; return 0; }
  (cd "$clients/javascript" && node --test test/) || return 1
  # modules are found from where the file lies, and none are unpacked into the sources
  local folder=$unpacked/javascript-example
  mkdir -p "$folder"
  sed "s#\"file:\.\.\"#\"file:$clients/javascript\"#" "$clients/javascript/example/package.json" >"$folder/package.json.new"
  if [ ! -e "$folder/ready" ] || ! cmp -s "$folder/package.json.new" "$folder/package.json"; then
    rm -f "$folder/ready" && cp "$folder/package.json.new" "$folder/package.json"
    (cd "$folder" && timeout 120 npm install --no-audit --no-fund --fetch-retries 1 --fetch-timeout 20000 >log 2>&1) ||
      { left_out JavaScript "its libraries cannot be had ($(grep -m 1 'npm error' "$folder/log" || true))"; return 0; }
    touch "$folder/ready"
  fi
  cp "$clients"/javascript/example/*.test.js "$folder/"
  (cd "$folder" && node --test .)
}

# The step of the GitHub Action, with the files of a runner.
run_action() {
  command -v kubectl >/dev/null || { left_out "GitHub Action, no" "there is no kubectl"; return 0; }
  local step=$clients/github-action RUNNER_TEMP=$scratch/runner digest
  export RUNNER_TEMP GITHUB_ACTION_PATH=$step
  mkdir -p "$RUNNER_TEMP"
  export GITHUB_ENV=$RUNNER_TEMP/env GITHUB_PATH=$RUNNER_TEMP/path GITHUB_OUTPUT=$RUNNER_TEMP/output
  digest=$(sha256sum "$binary" | cut -d ' ' -f 1)
  local inputs=(INPUT_BINARY="$binary" INPUT_SHA256="$digest" INPUT_NODES=2 INPUT_ARGS="--clock manual --seed 7")
  # every input of the declaration is one that the step reads
  local declared
  declared=$(sed -n '/^inputs:/,/^outputs:/s/^  \([a-z0-9]*\):$/\1/p' "$step/action.yml")
  [ -n "$declared" ] || { say "action.yml has no inputs"; return 1; }
  for input in $declared; do
    grep -q "INPUT_${input^^}\b" "$step/start.sh" || { say "start.sh does not read the input $input"; return 1; }
  done
  if env "${inputs[@]}" INPUT_SHA256=0 "$step/start.sh"; then say "a wrong digest is taken"; return 1; fi
  if env "${inputs[@]}" INPUT_ARGS=--no-such-flag "$step/start.sh" >/dev/null; then say "a wrong flag is taken"; return 1; fi
  : >"$GITHUB_ENV" && : >"$GITHUB_PATH" && : >"$GITHUB_OUTPUT"
  env "${inputs[@]}" "$step/start.sh" || return 1
  local status=0
  bash -eu <<'STEPS' || status=1
set -a && . "$GITHUB_ENV" && set +a
PATH=$(cat "$GITHUB_PATH"):$PATH
test -x "$KUBEBUILDER_ASSETS/kube-apiserver"
test -x "$PINTLE"
grep -q "^kubeconfig=$KUBECONFIG\$" "$GITHUB_OUTPUT"
kubectl create deployment web --image=example.com/web:1 --replicas=3
kubectl wait --for=condition=Available --timeout=60s deployment/web
pintle clock show --kubeconfig "$KUBECONFIG"
STEPS
  # the runner would end it with the job
  local running
  running=$(pgrep -f "^$RUNNER_TEMP/pintle/bin/pintle up") || true
  [ -n "$running" ] && kill "$running" || status=1
  return "$status"
}

run_documents() {
  command -v python3 >/dev/null || { left_out "examples of documents, no" "there is no python3"; return 0; }
  python3 "$here/documents.py" "$repository" "$binary"
}

find_binary
PINTLE=$(cd "$(dirname "$binary")" && pwd)/$(basename "$binary")
export PINTLE
[ $# -gt 0 ] || set -- go python javascript action documents
failed=0
for language; do
  say "---- $language"
  # apart, so that a folder that one changes to is left again
  ("run_$language") || failed=1
done
[ "$failed" -eq 0 ] || die "see above"
