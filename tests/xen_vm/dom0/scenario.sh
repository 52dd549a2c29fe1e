#!/bin/sh
# SPDX-License-Identifier: MIT
# shellcheck disable=SC1090,SC1091
# Runs one scenario in dom0: scenario.sh NAME. What a scenario may use is here.
set -u
scenario=$1
cd /tmp || exit 1
. /xen_vm/lib.sh
trap clean_up EXIT
. "/xen_vm/scenarios/$scenario.sh"
