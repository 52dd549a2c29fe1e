# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2034,SC2154,SC1090,SC1091
# Frontend and backend agree on the least: one queue, one ring page, no indirect requests, no discards, completions by
# system call, waiting by event; and the guest's driver without persistent grants.
random_image /tmp/disk.img 16
before=$(sum /tmp/disk.img)
cat >/tmp/guest.sh <<'END'
modprobe xen-blkfront
wait_disk xvda || exit 1
echo "segments $(cat /sys/block/xvda/queue/max_segments)"
echo "whole $(dd if=/dev/xvda bs=1M 2>/dev/null | md5sum | cut -d' ' -f1)"
yes pvring | head -c 1000448 >/tmp/pattern
dd if=/tmp/pattern of=/dev/xvda bs=512 seek=1001 conv=fsync 2>/dev/null || exit 2
echo 3 >/proc/sys/vm/drop_caches
[ "$(dd if=/dev/xvda bs=512 skip=1001 count=1954 2>/dev/null | md5sum)" = "$(md5sum </tmp/pattern)" ] || exit 3
END
GUEST_CPUS=2 make_guest least /tmp/guest.sh xen_blkfront.feature_persistent=0
serve pvring --queues 1 --ring-order 0 --max-indirect 0 --reap syscall --wait event
pvring-blk attach --type pvring --domain "$domain" --device xvda --image /tmp/disk.img --no-discard || fail "attach"
run_guest 60
guest_log | grep -q '^segments 11$' || fail "the guest uses indirect requests that were not offered"
guest_log | grep -q "^whole $before$" || fail "what the guest read is not the image"
yes pvring | head -c 1000448 >/tmp/pattern
[ "$(dd if=/tmp/disk.img bs=512 skip=1001 count=1954 2>/dev/null | md5sum)" = "$(md5sum </tmp/pattern)" ] ||
  fail "the image does not hold what the guest wrote"
stop_daemon
