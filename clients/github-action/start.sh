#!/usr/bin/env bash
# The step of action.yml: installs the program, starts a cluster, and tells the steps that follow by variables. The
# runner ends the cluster with the job.
#
# Takes: INPUT_BINARY, INPUT_SHA256, INPUT_START, INPUT_NODES, INPUT_ARGS; the runner's RUNNER_TEMP, GITHUB_ENV,
# GITHUB_PATH, GITHUB_OUTPUT, GITHUB_ACTION_PATH.
set -euo pipefail

die() {
  printf '::error::%s\n' "$*"
  exit 1
}
# adds a line to one of the runner's files
give() { printf '%s\n' "$2" >>"$1"; }

folder=$RUNNER_TEMP/pintle
mkdir -p "$folder/bin"
binary=$folder/bin/pintle
case ${INPUT_BINARY:-} in
  '')
    sources=$GITHUB_ACTION_PATH/../..
    command -v cargo >/dev/null || die "there is no cargo to build the program: set the input binary"
    cargo build --release --locked --manifest-path "$sources/Cargo.toml" -p pintle --target-dir "$folder/target"
    cp "$folder/target/release/pintle" "$binary"
    ;;
  https://*)
    [ -n "${INPUT_SHA256:-}" ] || die "a program from a URL needs the input sha256"
    curl -sSfL --retry 3 -o "$binary" "$INPUT_BINARY" || die "$INPUT_BINARY cannot be had"
    ;;
  *) cp "$INPUT_BINARY" "$binary" || die "there is no program $INPUT_BINARY" ;;
esac
if [ -n "${INPUT_SHA256:-}" ]; then
  printf '%s  %s\n' "$INPUT_SHA256" "$binary" | sha256sum --check --quiet || die "the program has another digest than the input sha256"
fi
chmod +x "$binary"
"$binary" version

give "$GITHUB_PATH" "$folder/bin"
give "$GITHUB_ENV" "PINTLE=$binary"
give "$GITHUB_ENV" "KUBEBUILDER_ASSETS=$("$binary" assets "$folder/assets")"
give "$GITHUB_OUTPUT" "binary=$binary"
[ "${INPUT_START:-true}" = true ] || exit 0

log=$folder/server.log
kubeconfig=$folder/kubeconfig
# arguments are separated by spaces, and no shell reads them
read -r -a arguments <<<"${INPUT_ARGS:-}"
nohup "$binary" up --ephemeral --secure-port 0 --write-kubeconfig "$kubeconfig" --nodes "${INPUT_NODES:-3}" \
  ${arguments[@]+"${arguments[@]}"} >"$log" 2>&1 </dev/null &
server=$!
for _ in $(seq 1200); do
  ! grep -q ' is ready on ' "$log" || break
  kill -0 "$server" 2>/dev/null || { cat "$log" && die "the cluster did not start"; }
  sleep 0.05
done
grep ' is ready on ' "$log" || { cat "$log" && die "the cluster was not ready within 60 s"; }
give "$GITHUB_ENV" "KUBECONFIG=$kubeconfig"
give "$GITHUB_OUTPUT" "kubeconfig=$kubeconfig"
