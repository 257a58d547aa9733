# shellcheck shell=bash
# Steps of a script that drives kubectl; to be sourced after server.sh. Wants $kubectl, $kubeconfig and $scratch.
#
# Gives: choose_kubectls WHAT ARGUMENTS... ($kubectls), k ARGUMENTS..., expect PATTERN ARGUMENTS..., refuse PATTERN ARGUMENTS..., step WORDS, and in $steps how many
# of them there were.

steps=0
step() { printf '  %s\n' "$*"; }

# kubectl with a home of its own, so that neither caches nor settings of the user play a part.
k() { HOME=$scratch/home KUBECONFIG=$kubeconfig "$kubectl" "$@"; }

complain() {
  printf 'FAILED: kubectl %s\n  expected: %s\n  got (status %s):\n' "$1" "$2" "$3" >&2
  sed 's/^/    /' <<<"$4" | head -n 40 >&2
  exit 1
}

# expect PATTERN ARGUMENTS...: kubectl succeeds and says something that matches; $output is what it said.
expect() {
  local pattern=$1 status=0
  shift
  output=$(k "$@" 2>&1) || status=$?
  [ "$status" -eq 0 ] && grep -qE -- "$pattern" <<<"$output" || complain "$*" "$pattern" "$status" "$output"
  steps=$((steps + 1))
}

# refuse PATTERN ARGUMENTS...: kubectl fails and says why.
refuse() {
  local pattern=$1 status=0
  shift
  output=$(k "$@" 2>&1) || status=$?
  [ "$status" -ne 0 ] && grep -qE -- "$pattern" <<<"$output" || complain "$*" "a failure: $pattern" "$status" "$output"
  steps=$((steps + 1))
}

# The programs to test with: the kubectl of the PATH, and the oldest and newest beside it. Some installations
# have several versions as kubectl.1.27, kubectl.1.28, ...
find_kubectls() {
  local first folder
  first=$(command -v kubectl) || return 0
  printf '%s\n' "$first"
  folder=$(dirname "$(readlink -f "$first")")
  find "$folder" -maxdepth 1 -name 'kubectl.1.*' -perm -u+x | sort -t. -k3n | sed -n '1p;$p' | uniq
}

# choose_kubectls WHAT KUBECTL...: $kubectls are these, or those that there are. Ends the script, loudly, where there is
# none.
choose_kubectls() {
  local what=$1
  shift
  if [ $# -eq 0 ]; then
    mapfile -t kubectls < <(find_kubectls)
  else
    kubectls=("$@")
  fi
  [ ${#kubectls[@]} -eq 0 ] || return 0
  echo "######################################################################"
  echo "## $what LEFT OUT: there is no kubectl on this machine."
  echo "## What a user sees of the server has NOT been tested by this run."
  echo "######################################################################"
  exit 0
}
