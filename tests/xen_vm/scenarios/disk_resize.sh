# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2034,SC2154,SC1090,SC1091
# An image grows while a guest has the disk: told by SIGHUP, the daemon announces it, and the guest uses what is new.
random_image /tmp/disk.img 8
cat >/tmp/guest.sh <<'END'
modprobe xen-blkfront
wait_disk xvda || exit 1
[ "$(cat /sys/block/xvda/size)" = 16384 ] || exit 2
echo "SMALL"
n=0
while [ "$(cat /sys/block/xvda/size)" != 32768 ] && [ $n -lt 300 ]; do sleep 0.1; n=$((n + 1)); done
[ "$(cat /sys/block/xvda/size)" = 32768 ] || exit 3
yes pvring | head -c 65536 | dd of=/dev/xvda bs=4k seek=4000 conv=fsync 2>/dev/null || exit 4
END
make_guest resize /tmp/guest.sh
serve pvring
pvring-blk attach --type pvring --domain "$domain" --device xvda --image /tmp/disk.img || fail "attach"
start_guest SMALL
truncate -s 16M /tmp/disk.img
kill -HUP "$daemon"
wait_guest 60
[ "$(dd if=/tmp/disk.img bs=4k skip=4000 count=16 2>/dev/null | md5sum)" = "$(yes pvring | head -c 65536 | md5sum)" ] ||
  fail "the image does not hold what the guest wrote behind its old end"
stop_daemon
