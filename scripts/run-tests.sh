#!/bin/sh
# The tests themselves, once everything is built; called by ./test.
set -u

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
log=$root/target/test.log
skips=$root/target/skips.log
failed=0

cargo fmt --all --check || failed=1
cargo clippy --workspace --all-targets --release --quiet -- -D warnings || failed=1

# One binary after another: network tests share two CPUs with their traffic.
# A test that cannot run here passes, and leaves a line in this file.
rm -f "$skips"
{ ASHWAY_SKIPS=$skips cargo test --workspace --release --no-fail-fast 2>&1; echo "cargo: $?"; } | tee "$log"
grep -q '^cargo: 0$' "$log" || failed=1
# Nothing above is built with this feature.
cargo test --package ashway-api --features schema --release --lib schema || failed=1
cargo xtask schema answer status > /dev/null || failed=1

# Deliberate mistakes, each of which has to turn a test red.
{ cargo xtask bugs 2>&1; echo "bugs: $?"; } | tee -a "$log"
grep -q '^bugs: 0$' "$log" || failed=1

# The runners' own closing lines, added up, less what stood aside.
cargo xtask tally "$log" "$skips" || failed=1
exit "$failed"
