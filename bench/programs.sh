# shellcheck shell=bash
# Finds or builds what the scripts of this folder run; to be sourced together with tests/smoke/server.sh.
#
# Takes: $here (this folder), $target (cargo's).
# Gives: build_tools [NAME...] ($tools, the folder of the ruler's programs; all of them, or those named), build_server PROFILE ($PINTLE),
# find_kbench ($kbench, empty where there is none), start_ceiling [flags] ($ceiling, the URL, and
# $ceiling_pid), stop_ceiling.

kbench=
ceiling=
ceiling_pid=

build_tools() {
  local name which=()
  for name; do which+=(--bin "$name"); done
  (cd "$here/.." && cargo build --quiet --release --locked -p bench ${which[@]+"${which[@]}"}) || die "the tools do not build"
  tools=$target/release
}

build_server() {
  if [ -z "${PINTLE:-}" ]; then
    (cd "$here/.." && cargo build --quiet --profile "$1" --locked -p pintle) || die "the server does not build"
    PINTLE=$target/$1/pintle
  fi
  export PINTLE
}

find_kbench() {
  local place=${KBENCH:-$here/../../shared/tools/kbench}
  if [ -f "$place" ] && [ -x "$place" ]; then
    kbench=$place
  elif [ -x "$place/target/release/kbench" ]; then
    kbench=$place/target/release/kbench
  elif [ -f "$place/Cargo.toml" ]; then
    # its folder may be somebody else's, so nothing is built there
    cargo build --quiet --release --manifest-path "$place/Cargo.toml" --target-dir "$target/bench/kbench" ||
      die "kbench does not build"
    kbench=$target/bench/kbench/release/kbench
  else
    say "there is no kbench at $place (KBENCH names it)"
  fi
}

start_ceiling() {
  local log=$scratch/ceiling.log waited=0
  : >"$log"
  "$tools/ceiling" "$@" >"$log" 2>&1 &
  ceiling_pid=$!
  until grep -q ' is ready on ' "$log"; do
    kill -0 "$ceiling_pid" 2>/dev/null || die "the bare responder did not start: $(cat "$log")"
    [ $((waited += 1)) -le 600 ] || die "the bare responder was not ready within 30 s"
    sleep 0.05
  done
  ceiling=$(sed -n 's/.* is ready on \([^ ]*\).*/\1/p' "$log")
}

stop_ceiling() {
  kill -TERM "$ceiling_pid" 2>/dev/null || true
  wait "$ceiling_pid" 2>/dev/null || true
  ceiling_pid=
}
