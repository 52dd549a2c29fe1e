# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2034,SC2154,SC1090,SC1091
# The guest's own netfront, unmodified: ping, and TCP both ways with the checksum of what arrived, for each strategy,
# delivery, and set of offloads. Dom0's kernel is at the other end, behind a TAP device.
modprobe tun
head -c 3000000 /dev/urandom >/tmp/down
cat >/tmp/guest.sh <<'END'
modprobe xen-netfront
n=0
until [ -d /sys/class/net/eth0 ]; do
  [ $n -lt 100 ] || { echo "no eth0"; exit 1; }
  sleep 0.1
  n=$((n + 1))
done
ifconfig lo 127.0.0.1 up
ifconfig eth0 10.77.0.2 netmask 255.255.255.0 up || exit 2
echo "queues $(ls -d /sys/class/net/eth0/queues/tx-* | wc -l)"
n=0
until ping -c 1 -W 1 10.77.0.1 >/dev/null; do
  [ $n -lt 20 ] || { echo "no answer to a ping"; exit 3; }
  n=$((n + 1))
done
ping -c 3 -i 0.2 -q 10.77.0.1 || exit 4
ping -c 2 -i 0.2 -s 8000 -q 10.77.0.1 || exit 5
nc 10.77.0.1 7001 >/tmp/got </dev/null || exit 6
echo "down $(md5sum </tmp/got | cut -d' ' -f1)"
head -c 3000000 /dev/urandom >/tmp/up
echo "up $(md5sum </tmp/up | cut -d' ' -f1)"
nc 10.77.0.1 7002 </tmp/up || exit 7
END
# run NAME OPTION...: one guest, served so.
run() {
  name=$1
  shift
  make_guest "$name" /tmp/guest.sh
  pvring-net --domain "$domain" --tap pvr0 --mac 00:16:3e:00:00:02 "$@" >"/tmp/daemon-$name.log" 2>&1 &
  daemon=$!
  daemons="${daemons-} $daemon"
  n=0
  until ifconfig pvr0 10.77.0.1 netmask 255.255.255.0 up 2>/dev/null; do
    [ $n -lt 50 ] || fail "no TAP device: $(cat "/tmp/daemon-$name.log")"
    sleep 0.1
    n=$((n + 1))
  done
  # A program at each end, and not a file: nc ends when one side of a connection does.
  nc -l -p 7001 -e cat /tmp/down &
  down=$!
  nc -l -p 7002 -e sh -c 'cat >/tmp/up' &
  up=$!
  run_guest 120
  wait "$down" "$up"
  guest_log | grep -q "^down $(sum /tmp/down)\$" || fail "$name: the guest got something else"
  guest_log | grep -q "^up $(sum /tmp/up)\$" || fail "$name: the guest sent something else"
  stop_daemon
  sed 's/^/  daemon: /' "/tmp/daemon-$name.log"
  xl destroy "$guest"
}
run copy
run deferred --delivery deferred --one-channel
run map --grants map_each
run plain --no-offloads --queues 1
guest=
