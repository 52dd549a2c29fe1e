# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2034,SC2154,SC1090,SC1091
# The daemon is killed again and again under a guest's load, and started again each time: the guest's I/O goes on, none of it
# fails, and what it wrote is there. One disk per grant strategy that can be succeeded.
# Loop devices, since what is written to a file in memory is never in flight: no kill would meet a request.
for disk in a0 b1; do
  random_image "/tmp/${disk%?}.img" 4
  losetup "/dev/loop${disk#?}" "/tmp/${disk%?}.img" || fail "no loop device for $disk"
done
cat >/tmp/guest.sh <<'END'
modprobe xen-blkfront
for letter in a b; do wait_disk "xvd$letter" || exit 1; done
# A further disk says that it is enough. What has been read and written is compared at the end of each round; the random part differs from round to round.
load() {
  disk=/dev/xvd$1
  head -c 4194304 /dev/urandom >"/tmp/$1"
  round=0
  while [ ! -b /dev/xvdd ]; do
    dd if="/tmp/$1" of="$disk" bs=64k oflag=direct conv=notrunc 2>/dev/null || { echo "WRITE FAILED $disk"; return 1; }
    dd if="$disk" of="/tmp/$1.back" bs=32k iflag=direct 2>/dev/null || { echo "READ FAILED $disk"; return 1; }
    cmp "/tmp/$1" "/tmp/$1.back" || { echo "DIFFERENT $disk"; return 1; }
    dd if=/dev/urandom of="/tmp/$1" bs=64k count=8 seek=$((round % 56)) conv=notrunc 2>/dev/null
    dd if="/tmp/$1" of="$disk" bs=4k count=128 oflag=direct conv=notrunc,fsync 2>/dev/null || { echo "FSYNC FAILED $disk"; return 1; }
    round=$((round + 1))
  done
  dd if="/tmp/$1" of="$disk" bs=64k oflag=direct conv=notrunc,fsync 2>/dev/null || return 1
  echo "$1 $round rounds $(md5sum <"/tmp/$1" | cut -d' ' -f1)"
}
echo BUSY
load a & one=$!
load b & two=$!
wait $one && wait $two
END
make_guest killed /tmp/guest.sh
start() {
  for kind in copy persistent; do
    serve "pvring-$kind" --grants "$kind" --journals "/tmp/journals/$kind" --stats 1 --metrics "/tmp/metrics-$kind"
    eval "$kind=\$daemon"
  done
}
start
pvring-blk attach --type pvring-copy --domain "$domain" --device xvda --image /dev/loop0 || fail "attach a"
pvring-blk attach --type pvring-persistent --domain "$domain" --device xvdb --image /dev/loop1 || fail "attach b"
start_guest BUSY
# took_over ROUND: waits until both have said so, as often as they were started again.
took_over() {
  tries=0
  until [ "$(cat /tmp/earlier.log /tmp/daemon-*.log | grep -c 'taken over')" -ge $((2 * $1)) ]; do
    [ $tries -lt 240 ] || fail "after $1 restarts not every daemon took over: $(tail -n 3 /tmp/daemon-*.log)"
    sleep 0.25
    tries=$((tries + 1))
  done
}
touch /tmp/earlier.log
# met KIND: whether a daemon of this kind was killed with a request in flight.
met() { grep -q "^pvring_blk_redone_total{type=\"pvring-$1\".*} [1-9]" /tmp/earlier.metrics; }
touch /tmp/earlier.metrics
round=0
until [ $round -ge 4 ] && met copy && met persistent; do
  [ $round -lt 20 ] || fail "$round kills met no request in flight: $(grep redone_total /tmp/earlier.metrics)"
  round=$((round + 1))
  # Long enough for counters of the one before, and never at the same place of the load.
  sleep "1.$((round * 37 % 100 + 10))"
  kill -KILL "$copy" "$persistent"
  wait "$copy" "$persistent" 2>/dev/null
  cat /tmp/daemon-*.log >>/tmp/earlier.log
  cat /tmp/metrics-* >>/tmp/earlier.metrics
  start
  took_over "$round"
done
random_image /tmp/d.img 1
pvring-blk attach --type pvring-copy --domain "$domain" --device xvdd --image /tmp/d.img || fail "attach d"
wait_guest 90
for letter in a b; do
  guest_log | grep -q "^$letter [1-9][0-9]* rounds $(sum /tmp/$letter.img)\$" || fail "disk $letter: the image holds something else"
done
for daemon in "$copy" "$persistent"; do stop_daemon; done
[ -z "$(find /tmp/journals -type f)" ] || fail "journals were left: $(find /tmp/journals -type f)"
for loop in 0 1; do losetup -d "/dev/loop$loop"; done
