# shellcheck shell=bash
# Machines for tests of networks: each is a set of namespaces (network, mounts, processes, host name, IPC) with a /run of
# its own, and switches join their links. To be sourced after server.sh; takes root. All of it goes when the script does.
#
# Gives: need_machines TEST       ends the script, loudly, where there can be none
#        make_machine NAME        a machine with a loopback link
#        on NAME COMMAND...       runs a command on it
#        start_on NAME PROCESS COMMAND...   starts one, with a log in $scratch/logs/NAME.PROCESS
#        stop_on NAME PROCESS     ends it, and waits until it has ended
#        make_switch NAME         a switch
#        plug MACHINE SWITCH LINK ADDRESS...   a link of a machine to a switch
#        wait_until WHAT COMMAND...            waits for at most a minute

declare -A machines=() started=()
fabric=

leave_out() {
  say "######################################################################"
  say "## $* "
  say "######################################################################"
  exit 0
}

need_machines() {
  local test=$1 program
  [ "$(id -u)" = 0 ] || leave_out "$test LEFT OUT: namespaces take root."
  for program in unshare nsenter ip pgrep; do
    command -v "$program" >/dev/null || leave_out "$test LEFT OUT: there is no $program."
  done
  unshare -m -n -p -u -i --fork true 2>/dev/null || leave_out "$test LEFT OUT: this machine allows no namespaces."
  mkdir -p "$scratch/logs"
  trap clear_machines EXIT
  # a reader of the output that ends must not leave machines behind
  trap 'exit 141' PIPE
}

clear_machines() {
  local status=$? name
  trap - EXIT
  trap '' PIPE
  set +e
  if [ "$status" -ne 0 ]; then
    for name in "$scratch"/logs/*; do
      [ ! -s "$name" ] || { say "--- the end of ${name##*/}:" >&2 && tail -n 15 "$name" >&2; }
    done
  fi
  # the first process of a machine takes all others with it
  for name in "${!machines[@]}"; do kill -KILL "${machines[$name]}" 2>/dev/null; done
  [ -z "$fabric" ] || kill -KILL "$fabric" 2>/dev/null
  wait 2>/dev/null
  (exit "$status")
  leave
}

# Starts a process that holds new namespaces, and sets $held to its process id.
hold() {
  local outer waited=0
  "$@" --fork bash -c 'trap : TERM; while :; do sleep 1000 & wait; done' </dev/null >/dev/null 2>&1 &
  outer=$!
  held=
  until held=$(pgrep -P "$outer") && [ -n "$held" ]; do
    [ $((waited += 1)) -lt 100 ] || die "the namespaces were not made"
    sleep 0.05
  done
}

make_machine() {
  local name=$1
  hold unshare -m -n -p -u -i --mount-proc --propagation private
  machines[$name]=$held
  on "$name" bash -euc "
    hostname $name; mount -t tmpfs tmpfs /run; mkdir -p /run/netns /run/lock; ip link set lo up
    # a new namespace may start with the settings of the machine around it
    echo 0 >/proc/sys/net/ipv4/ip_forward; echo 0 >/proc/sys/net/ipv6/conf/all/forwarding
    for setting in /proc/sys/net/ipv6/conf/*/accept_dad; do echo 0 >\$setting; done"
}

on() {
  local name=$1
  shift
  nsenter -t "${machines[$name]}" -m -n -p -u -i "$@"
}

start_on() {
  local name=$1 process=$2
  shift 2
  # shellcheck disable=SC2016 # the shell inside expands its own process id
  on "$name" bash -c 'echo $$ >"$0"; exec "$@"' "/run/$process.pid" "$@" >>"$scratch/logs/$name.$process" 2>&1 </dev/null &
  started[$name.$process]=$!
}

stop_on() {
  local name=$1 process=$2
  on "$name" bash -c 'kill -TERM "$(cat "/run/$0.pid")"' "$process"
  wait "${started[$name.$process]}" || true
  unset "started[$name.$process]"
}

make_switch() {
  if [ -z "$fabric" ]; then
    hold unshare -n
    fabric=$held
  fi
  nsenter -t "$fabric" -n ip link add "$1" type bridge mcast_snooping 0
  nsenter -t "$fabric" -n ip link set "$1" up
}

plug() {
  local name=$1 switch=$2 link=$3 port=$1-$3 address
  shift 3
  nsenter -t "$fabric" -n ip link add "$port" type veth peer name "$link" netns "${machines[$name]}"
  nsenter -t "$fabric" -n ip link set "$port" master "$switch" up
  on "$name" ip link set "$link" up
  for address in "$@"; do on "$name" ip address add "$address" dev "$link"; done
}

wait_until() {
  local what=$1 end=$((SECONDS + 60))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || die "$what: not within a minute"
    sleep 0.2
  done
}
