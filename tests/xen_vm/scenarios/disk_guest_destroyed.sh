# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2034,SC2154,SC1090,SC1091
# A guest is destroyed in the middle of its I/O: the daemon lets go of it, and serves the next guest from the same image.
random_image /tmp/disk.img 16
cat >/tmp/guest.sh <<'END'
modprobe xen-blkfront
wait_disk xvda || exit 1
echo "BUSY"
while :; do
  dd if=/dev/urandom of=/dev/xvda bs=256k count=32 conv=fsync 2>/dev/null
  dd if=/dev/xvda of=/dev/null bs=64k iflag=direct 2>/dev/null
done
END
make_guest first /tmp/guest.sh
serve pvring
pvring-blk attach --type pvring --domain "$domain" --device xvda --image /tmp/disk.img || fail "attach"
first=$domain
start_guest BUSY
sleep 2
xl destroy "$guest"
sleep 1
kill -0 "$daemon" || fail "the daemon ended with its guest"
xenstore-rm "/local/domain/0/backend/pvring/$first"

cat >/tmp/guest.sh <<'END'
modprobe xen-blkfront
wait_disk xvda || exit 1
echo "whole $(dd if=/dev/xvda bs=1M 2>/dev/null | md5sum | cut -d' ' -f1)"
END
make_guest second /tmp/guest.sh
pvring-blk attach --type pvring --domain "$domain" --device xvda --image /tmp/disk.img || fail "attach to the second guest"
run_guest 60
guest_log | grep -q "^whole $(sum /tmp/disk.img)$" || fail "the second guest reads something else"
stop_daemon
