#!/bin/sh
# The first process of the virtual machine of cgroup2.sh. The kernel starts it in an initial file system that cannot be
# changed for another root, so everything moves to a tmpfs first.
export PATH=/bin
if [ "$1" != inside ]; then
  mkdir -p /new
  mount -t tmpfs -o mode=755,size=80% tmpfs /new
  for name in bin etc lib lib64 test root var sbin usr init; do [ ! -e /$name ] || cp -a /$name /new/; done
  mkdir -p /new/proc /new/sys /new/dev /new/run /new/tmp
  exec switch_root /new /init inside
fi
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts -o mode=620,ptmxmode=666,gid=5 devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /tmp
# as systemd mounts it
mount -t cgroup2 -o nsdelegate,memory_recursiveprot cgroup2 /sys/fs/cgroup
mount --make-rshared /
export HOME=/root
hostname v2
ulimit -n 65536
ip link set lo up
modprobe dummy numdummies=0
ip link add eth0 type dummy
ip address add 192.168.9.1/24 dev eth0
ip link set eth0 up
ip route add default via 192.168.9.254 dev eth0
# the rest is loaded by the kernel as it is asked for
modprobe -a overlay nf_conntrack_netlink
# $part and $test come from the command line of the kernel
# the firmware leaves half a line
echo
sh /test/guest.sh >/dev/console 2>&1 </dev/null
sync
poweroff -f
