# shellcheck shell=bash
# Machines with containerd, for tests of clusters; to be sourced after server.sh and machines.sh.
#
#   PINTLE        the binary to test (built when not given)
#   PINTLE_NODE   the folder with the sources of images (../shared/tools/node beside the repository)
#
# Gives: need_nodes TEST            ends the script, loudly, where there can be none; makes the images
#        make_node NAME ADDRESS...  a machine with containerd and images, whose folders are below $scratch/NAME: a
#                                   configuration of a node agent is agent.yaml

controllers='cpu cpuacct cpuset memory devices freezer blkio pids systemd unified'
group=pintle-$$
nodes=()
need_nodes() {
  local test=$1 program
  need_machines "$test"
  tools=${PINTLE_NODE:-$repository/../shared/tools/node}
  missing() { leave_out "$test LEFT OUT: $*"; }
  for program in containerd ctr runc kubectl gcc python3; do
    command -v $program >/dev/null || missing "there is no $program."
  done
  [ -f "$tools/images/make.py" ] || missing "there is no folder with images at $tools."
  [ -x /bin/busybox ] || missing "there is no /bin/busybox for the images."
  [ -d /sys/fs/cgroup/memory ] || missing "this machine has no cgroups v1."
  [ -n "${binary:-}" ] || find_binary
  binary=$(realpath "$binary")
  mkdir "$scratch/images"
  python3 "$tools/images/make.py" "$scratch/images" >"$scratch/images.log" 2>&1 ||
    { cat "$scratch/images.log" && missing "the images cannot be made."; }
  trap clear_cluster EXIT
}

clear_cluster() {
  local status=$? controller task name
  trap - EXIT
  trap '' PIPE
  set +e
  for name in "${nodes[@]}"; do
    for task in $(on "$name" ctr -n k8s.io tasks ls -q 2>/dev/null); do
      on "$name" ctr -n k8s.io tasks kill -s KILL -a "$task" >/dev/null 2>&1
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

make_node() {
  local name=$1 folder=$scratch/$1 controller file image
  shift
  mkdir -p "$folder"/{net.d,bin,varlog,state}
  make_machine "$name"
  nodes+=("$name")
  plug "$name" lan eth0 "$@"
  on "$name" ip route add default via 192.168.5.254 dev eth0
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
END
  start_on "$name" containerd containerd -c "$folder/containerd.toml"
  wait_until containerd on "$name" ctr version
  for image in pause busybox; do
    on "$name" ctr -n k8s.io images import --base-name x "$scratch/images/$image.tar" >/dev/null
  done
}
