#!/bin/sh
# Start ci-autotest as whoever owns the folder it works in, where the container started as root.
# A report that root writes into a mounted checkout cannot be removed by the user whose checkout it is. Where root owns
# the folder (a rootless engine shows its user so), root it stays; a user that was named with `--user` is left alone.
set -eu
if [ "$(id -u)" = 0 ]; then
  owner=$(stat -c %u .)
  group=$(stat -c %g .)
  if [ "$owner" != 0 ]; then
    if ! setpriv --reuid "$owner" --regid "$group" --clear-groups --no-new-privs true 2> /dev/null; then
      echo "the container may not become user $owner, who owns '$PWD': start it with --user $owner:$group." >&2
      exit 2
    fi
    exec setpriv --reuid "$owner" --regid "$group" --clear-groups --no-new-privs ci-autotest "$@"
  fi
fi
exec ci-autotest "$@"
