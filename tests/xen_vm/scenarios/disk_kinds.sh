# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2034,SC2154,SC1090,SC1091
# A read-only disk refuses writes; a discard gives the image's blocks back; a disk without discards offers none; a
# detached disk is gone from the guest and from the store.
random_image /tmp/a.img 8
cp /tmp/a.img /tmp/b.img
cp /tmp/a.img /tmp/c.img
cat >/tmp/guest.sh <<'END'
modprobe xen-blkfront
wait_disk xvda && wait_disk xvdb && wait_disk xvdc || exit 1
[ "$(cat /sys/block/xvda/ro)" = 1 ] || exit 2
dd if=/dev/zero of=/dev/xvda bs=4k count=1 conv=fsync 2>/dev/null && exit 3
blkdiscard -o 1048576 -l 4194304 /dev/xvdb || exit 4
echo "discarded $(dd if=/dev/xvdb bs=1M skip=1 count=4 2>/dev/null | tr -d '\000' | wc -c)"
blkdiscard -o 1048576 -l 4194304 /dev/xvdc && exit 5
[ "$(cat /sys/block/xvdc/queue/discard_max_bytes)" = 0 ] || exit 6
sync
echo "DETACH"
n=0
while [ -b /dev/xvdb ] && [ $n -lt 300 ]; do sleep 0.1; n=$((n + 1)); done
[ ! -b /dev/xvdb ] || exit 7
true
END
before=$(du -k /tmp/b.img | cut -f1)
make_guest kinds /tmp/guest.sh
serve pvring
pvring-blk attach --type pvring --domain "$domain" --device xvda --image /tmp/a.img --read-only || fail "attach xvda"
pvring-blk attach --type pvring --domain "$domain" --device xvdb --image /tmp/b.img || fail "attach xvdb"
pvring-blk attach --type pvring --domain "$domain" --device xvdc --image /tmp/c.img --no-discard || fail "attach xvdc"
pvring-blk list --type pvring
start_guest DETACH
guest_log | grep -q '^discarded 0$' || fail "discarded blocks do not read as zeroes: $(guest_log)"
[ "$(du -k /tmp/b.img | cut -f1)" -le $((before - 4000)) ] || fail "the image is as large as before the discard"
cmp -s /tmp/a.img /tmp/c.img || fail "a disk was written that could not be"
pvring-blk detach --type pvring --domain "$domain" --device xvdb || fail "detach"
if xenstore-list "/local/domain/0/backend/pvring/$domain" 2>/dev/null | grep -q 51728; then
  fail "the detached device is in the store"
fi
wait_guest 60
stop_daemon
