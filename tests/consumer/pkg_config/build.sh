#!/bin/sh
# SPDX-License-Identifier: MIT
# A consumer without CMake: compiles against what pkg-config says, and runs the result.
#   build.sh FOLDER   (with CXX, PKG_CONFIG, PKG_CONFIG_PATH, CONSUMER_COMPONENTS, CONSUMER_VERSION and
#   CONSUMER_HEADERS set)
set -eu

source_dir=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"

use() { # use MODULE MACRO
  version=$("$PKG_CONFIG" --modversion "$1")
  if [ "$version" != "$CONSUMER_VERSION" ]; then
    echo "pkg-config says that $1 is version $version, not $CONSUMER_VERSION" >&2
    exit 1
  fi
  # The flags are words.
  # shellcheck disable=SC2046
  "$CXX" -std=c++20 "-D$2" "-I$CONSUMER_HEADERS" "$source_dir/use.cpp" \
    -o "$build_dir/$1" $("$PKG_CONFIG" --cflags --libs "$1")
  "$build_dir/$1" "$CONSUMER_VERSION"
}

build_dir=$1
use pvring USE_CORE
case ",$CONSUMER_COMPONENTS," in *,libaio,*) use pvring-libaio USE_LIBAIO ;; esac
case ",$CONSUMER_COMPONENTS," in *,uring,*) use pvring-uring USE_URING ;; esac
case ",$CONSUMER_COMPONENTS," in *,nbd,*) use pvring-nbd USE_NBD ;; esac
case ",$CONSUMER_COMPONENTS," in *,xen,*) use pvring-xen USE_XEN ;; esac
case ",$CONSUMER_COMPONENTS," in *,testing,*) use pvring-testing USE_TESTING ;; esac
