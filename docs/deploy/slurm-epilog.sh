#!/bin/sh
# Epilog of Slurm (slurm.conf: Epilog=/etc/slurm/ringwright-epilog.sh): brings what killed launchers of `ringwright run --local DIR`
# left on this node to the folders of their recordings. It reads nothing else, and never drains a node: its exit code is 0.
#   RINGWRIGHT_LOCAL=DIR SLURM_JOB_ID=77 slurm-epilog.sh       by hand, as the user whose job it was
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
umask 077
local_folder=${RINGWRIGHT_LOCAL:-/tmp}

case ${SLURM_JOB_ID:-} in
'' | *[!0-9]*) echo "ringwright: SLURM_JOB_ID is not set" >&2; exit 0 ;;
esac

# Files of a user are brought by that user: a link or a folder's name gives nobody what root may write.
if [ "$(id -u)" = 0 ] && [ "${SLURM_JOB_UID:-0}" != 0 ]; then
  setpriv --reuid "$SLURM_JOB_UID" --regid "${SLURM_JOB_GID:-$SLURM_JOB_UID}" --clear-groups --inh-caps=-all -- "$0"
  exit 0
fi

bring() { # FILE FOLDER: whole or not at all, beside what is there
  name=${1##*/} new=${1##*/} life=2
  case $name in *.*) stem=${name%.*} ending=.${name##*.} ;; *) stem=$name ending= ;; esac
  while [ -e "$2/$new" ]; do
    new=$stem-$life$ending
    life=$((life + 1))
  done
  cp -- "$1" "$2/.$new.draft" && mv -- "$2/.$new.draft" "$2/$new" && rm -- "$1"
}

for folder in "$local_folder/ringwright-$SLURM_JOB_ID".*; do
  [ -d "$folder" ] && [ ! -h "$folder" ] && [ -f "$folder/.run.collect" ] || continue
  [ "$(stat -c %u -- "$folder")" = "$(id -u)" ] || continue
  goal=$(cat -- "$folder/.run.collect")
  left=
  mkdir -p -- "$goal" || left=1
  for file in "$folder"/*; do
    [ -e "$file" ] && [ -z "$left" ] || continue
    { [ -f "$file" ] && [ ! -h "$file" ] && bring "$file" "$goal"; } || left=1
  done
  if [ -z "$left" ]; then
    rm -rf -- "$folder"
  else
    echo "ringwright: $folder stays: not all of it can be brought to $goal" >&2
  fi
done
exit 0
