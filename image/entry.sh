#!/bin/sh
# Starts ci-autotest as the owner of the working folder if the container started as root.
# Otherwise root would write the report into a mounted checkout, and the checkout's owner could not remove it. If root owns
# the folder, which is how a rootless engine shows its user, root is kept; so is a user that `--user` names.
set -eu
if [ "$(id -u)" = 0 ]; then
  owner=$(stat -c %u .)
  group=$(stat -c %g .)
  if [ "$owner" != 0 ]; then
    if ! setpriv --reuid "$owner" --regid "$group" --clear-groups --no-new-privs true 2> /dev/null; then
      echo "the container has no right to become user $owner, who owns '$PWD': start it with --user $owner:$group." >&2
      exit 2
    fi
    exec setpriv --reuid "$owner" --regid "$group" --clear-groups --no-new-privs ci-autotest "$@"
  fi
fi
exec ci-autotest "$@"
