#!/bin/sh
# The store's containers of docker-compose.yml: `store.sh store | sentinel | create-cluster | healthy`.
# Renders the configuration from store.conf and limpet.acl, with the passwords of the environment, then becomes the server.
set -eu
umask 077

here=$(dirname "$0")
mode=${STORE_MODE:-single}

hashed() { printf %s "$1" | sha256sum | cut -d ' ' -f 1; }
as_operator() { REDISCLI_AUTH=$STORE_OPERATOR_PASSWORD valkey-cli --no-auth-warning --user operator "$@"; }

# `operator` replicates, fails over and joins nodes; Limpet itself has the least rights.
acl() {
  sed "s/>change-me-before-use/#$(hashed "$STORE_PASSWORD")/" "$here/limpet.acl"
  echo "user operator on #$(hashed "$STORE_OPERATOR_PASSWORD") ~* &* +@all"
}

store() {
  data=/data/$mode
  conf=$data/valkey.conf
  mkdir -p "$data"
  # Whom a node follows is decided by failovers after its first start, and outlives a restart.
  if [ -f "$conf" ]; then follows=$(grep '^replicaof ' "$conf" || true); else follows=${STORE_FOLLOWS:+replicaof $STORE_FOLLOWS}; fi
  acl >/tmp/users.acl
  {
    sed '/^aclfile/d' "$here/store.conf"
    echo "aclfile /tmp/users.acl"
    echo "dir $data"
    echo "maxmemory ${STORE_MAXMEMORY:-384mb}"
    echo "masteruser operator"
    echo "masterauth \"$STORE_OPERATOR_PASSWORD\""
    if [ "$mode" = cluster ]; then
      echo "cluster-enabled yes"
      echo "cluster-node-timeout 5000"
    fi
    if [ "$mode" = sentinel ]; then
      # A primary without replicas stops taking writes instead of deciding what the failover will undo.
      echo "min-replicas-to-write 1"
      echo "min-replicas-max-lag 10"
    fi
    echo "$follows"
  } >"$conf.new"
  mv "$conf.new" "$conf"
  exec valkey-server "$conf"
}

sentinel() {
  conf=/data/sentinel.conf
  # Written once: a sentinel keeps its own memory in it.
  if [ ! -f "$conf" ]; then
    {
      echo "port 26379"
      echo "dir /data"
      echo "protected-mode no"
      echo "sentinel monitor limpet $STORE_PRIMARY 6379 2"
      echo "sentinel auth-user limpet operator"
      echo "sentinel auth-pass limpet $STORE_OPERATOR_PASSWORD"
      echo "sentinel down-after-milliseconds limpet 3000"
      echo "sentinel failover-timeout limpet 15000"
    } >"$conf"
  fi
  exec valkey-server "$conf" --sentinel
}

create_cluster() {
  for node in $STORE_NODES; do
    until as_operator -h "$node" ping >/dev/null 2>&1; do sleep 0.5; done
  done
  first=${STORE_NODES%% *}
  if as_operator -h "$first" cluster info | grep -q '^cluster_state:ok'; then
    echo "The cluster is there already."
    return
  fi
  as_operator --cluster create $(for node in $STORE_NODES; do printf '%s:6379 ' "$node"; done) --cluster-replicas 1 --cluster-yes
}

healthy() {
  if [ "${1:-}" = sentinel ]; then
    valkey-cli -p 26379 ping | grep -q PONG
  elif [ "$mode" = cluster ]; then
    as_operator cluster info | grep -q '^cluster_state:ok'
  else
    as_operator ping | grep -q PONG
  fi
}

case ${1:-} in
  store) store ;;
  sentinel) sentinel ;;
  create-cluster) create_cluster ;;
  healthy) shift && healthy "$@" ;;
  *) echo "store.sh: say store, sentinel, create-cluster or healthy" >&2 && exit 2 ;;
esac
