# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2034,SC2154,SC1090,SC1091
# The platform's conformance suite on Xen itself: dom0 grants to itself.
xen_platform_conformance --gtest_brief=1
