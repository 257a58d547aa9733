# shellcheck shell=bash
# Machines with a containerd of their own, for tests of clusters; to be sourced after machines.sh. It takes root, cgroups
# v1, containerd, kubectl, and gcc, busybox and Python 3 for the images.
#
#   PINTLE_NODE   the folder with the sources of images (../shared/tools/node beside the repository)
#
# Gives: need_nodes TEST            ends the script, loudly, where there can be none; $binary
#        make_images                the images, once
#        make_node NAME ADDRESS...  a machine at the switch `lan` with containerd; its files are in $scratch/NAME, among
#                                   them agent.yaml, the configuration of an agent. Lines in $agent_settings are part of it
#        containers NAME ARGUMENTS...   ctr of that machine

tools=${PINTLE_NODE:-$repository/../shared/tools/node}
controllers='cpu cpuacct cpuset memory devices freezer blkio pids systemd unified'
group=pintle-$$
nodes=()
agent_settings=

need_nodes() {
  local test=$1 program
  need_machines "$test"
  for program in containerd ctr runc kubectl gcc python3; do
    command -v "$program" >/dev/null || leave_out "$test LEFT OUT: there is no $program."
  done
  [ -f "$tools/images/make.py" ] || leave_out "$test LEFT OUT: there is no folder with images at $tools."
  [ -x /bin/busybox ] || leave_out "$test LEFT OUT: there is no /bin/busybox for the images."
  [ -d /sys/fs/cgroup/memory ] || leave_out "$test LEFT OUT: this machine has no cgroups v1."
  [ -n "${binary:-}" ] || find_binary
  binary=$(realpath "$binary")
  trap clear_nodes EXIT
}

clear_nodes() {
  local status=$? controller task name
  trap - EXIT
  trap '' PIPE
  set +e
  for name in "${nodes[@]}"; do
    for task in $(containers "$name" tasks ls -q 2>/dev/null); do
      containers "$name" tasks kill -s KILL -a "$task" >/dev/null 2>&1
    done
    kill -KILL "${machines[$name]}" 2>/dev/null
  done
  sleep 1
  for controller in $controllers; do
    find "/sys/fs/cgroup/$controller/$group-"* -depth -type d -exec rmdir {} \; 2>/dev/null
  done
  (exit "$status")
  clear_machines
}

containers() { on "$1" ctr -n k8s.io "${@:2}"; }

make_images() {
  mkdir "$scratch/images"
  python3 "$tools/images/make.py" "$scratch/images" >"$scratch/images.log" 2>&1 ||
    { cat "$scratch/images.log" && leave_out "LEFT OUT: the images cannot be made."; }
}

# make_node NAME ADDRESS...: a machine with containerd and images, whose folders are below $scratch/NAME.
make_node() {
  local name=$1 folder=$scratch/$1 controller file image
  shift
  mkdir -p "$folder"/{net.d,bin,varlog,state}
  make_machine "$name"
  nodes+=("$name")
  plug "$name" lan eth0 "$@"
  on "$name" ip route add default via "${1%.*}.254" dev eth0
  for controller in $controllers; do
    [ ! -d "/sys/fs/cgroup/$controller" ] || mkdir -p "/sys/fs/cgroup/$controller/$group-$name"
  done
  for file in cpuset.cpus cpuset.mems; do
    cat "/sys/fs/cgroup/cpuset/$file" >"/sys/fs/cgroup/cpuset/$group-$name/$file"
  done
  on "$name" bash -euc "mount --make-rshared /; mount --bind '$folder/varlog' /var/log; mount --make-rshared /
    printf '127.0.0.1 localhost\n${1%/*} $name\n' >'$folder/hosts'; mount --bind '$folder/hosts' /etc/hosts"
  cat >"$folder/containerd.toml" <<END
version = 2
root = "$folder/state/root"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$folder/state/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.test/pause:3.9"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$folder/bin"
    conf_dir = "$folder/net.d"
END
  cat >"$folder/agent.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupRoot: /$group-$name
failSwapOn: false
imageGCHighThresholdPercent: 100
evictionHard: {nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
$agent_settings
END
  start_on "$name" containerd containerd -c "$folder/containerd.toml"
  wait_until containerd on "$name" ctr version
  for image in pause busybox; do
    on "$name" ctr -n k8s.io images import --base-name x "$scratch/images/$image.tar" >/dev/null
  done
}
