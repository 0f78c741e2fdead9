# Network namespaces for the system tests: each node of a cluster and its clients on a host of their own, with
# cables that can be cut without either side hearing of it. Sourced by bash, needs root and iproute2.
# shellcheck shell=bash
#
#   host namesrv-1 ──┐
#   host broker-a-0 ─┼── router: forwards, and drops what a cut forbids (a blackhole rule for each direction)
#   host broker-a-1 ─┤
#   host clients ────┘
#
# A cut drops in the middle: no reset, no ICMP, no failing connect at an end, as when a cable is pulled or a
# host is gone. Nothing of the machine's own network is touched: the router has no link to it, so the addresses
# (10.231.0.0/24) cannot clash.
#
#   netns_available || skip…           says why not on stderr
#   netns_create HOST…                 namespaces tmq-RANDOM-HOST; netns_destroy in a trap
#   netns_hosts_file FILE NODE…        for deploy/cluster.sh: $TERNMQ_HOME/hosts
#   netns_exec HOST COMMAND…           runs it there
#   netns_cut A B; netns_heal A B      both directions; netns_heal_all
#   netns_rate HOST RATE               limits what reaches the host (10mbit); netns_rate HOST "" undoes it

netns_prefix=
netns_names=()

netns_name() { echo "$netns_prefix-$1"; }
netns_index() {
    local i
    for i in "${!netns_names[@]}"; do
        if [ "${netns_names[i]}" = "$1" ]; then echo $((i + 1)) && return; fi
    done
    die "no host '$1' in this network"
}
netns_address() { echo "10.231.0.$(netns_index "$1")"; }
netns_exec() {
    local host=$1
    shift
    ip netns exec "$(netns_name "$host")" "$@"
}

# Whether this machine lets us: root, ip, namespaces, and rules that drop.
netns_available() {
    local probe=tmq-probe-$$ fine=true
    if [ "$(id -u)" -ne 0 ]; then echo "network namespaces need root" >&2 && return 1; fi
    if ! command -v ip >/dev/null; then echo "ip is missing: install iproute2" >&2 && return 1; fi
    if ! ip netns add "$probe" 2>/dev/null; then
        echo "this machine does not let us make network namespaces" >&2 && return 1
    fi
    ip -n "$probe" rule add from 10.231.0.1 to 10.231.0.2 blackhole 2>/dev/null &&
        ip -n "$probe" link add probe0 type veth peer name probe1 2>/dev/null || fine=false
    ip netns delete "$probe"
    if ! $fine; then echo "this kernel lacks veth or routing rules" >&2 && return 1; fi
}

netns_create() {
    netns_prefix=tmq-$(od -An -N4 -tx4 /dev/urandom | tr -d ' ')
    netns_names=("$@")
    local router name host address i=0
    router=$(netns_name router)
    ip netns add "$router"
    ip -n "$router" link set lo up
    ip -n "$router" address add 10.231.0.254/32 dev lo
    ip netns exec "$router" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
    for host; do
        i=$((i + 1))
        name=$(netns_name "$host")
        address=$(netns_address "$host")
        ip netns add "$name"
        ip -n "$name" link set lo up
        ip -n "$router" link add "to$i" type veth peer name eth0 netns "$name"
        ip -n "$router" link set "to$i" up
        ip -n "$name" address add "$address/32" dev eth0
        ip -n "$name" link set eth0 up
        ip -n "$name" route add 10.231.0.254 dev eth0
        ip -n "$name" route add default via 10.231.0.254
        ip -n "$router" route add "$address/32" dev "to$i"
    done
}

# Ends what still runs inside, and removes them. Never fails: it runs in traps.
netns_destroy() {
    [ -n "$netns_prefix" ] || return 0
    local host pid
    for host in "${netns_names[@]}" router; do
        for pid in $(ip netns pids "$(netns_name "$host")" 2>/dev/null); do kill -KILL "$pid" 2>/dev/null || true; done
        ip netns delete "$(netns_name "$host")" 2>/dev/null || true
    done
    netns_prefix=
}

netns_hosts_file() {
    local file=$1 node
    shift
    for node; do
        printf '%s %s ip netns exec %s\n' "$node" "$(netns_address "$node")" "$(netns_name "$node")"
    done >"$file"
}

netns_rule() {
    local from to
    from=$(netns_address "$2")
    to=$(netns_address "$3")
    ip -n "$(netns_name router)" rule "$1" from "$from" to "$to" blackhole
}
netns_cut() {
    netns_rule add "$1" "$2"
    netns_rule add "$2" "$1"
}
netns_heal() {
    netns_rule delete "$1" "$2"
    netns_rule delete "$2" "$1"
}
netns_heal_all() {
    local router
    router=$(netns_name router)
    while ip -n "$router" rule list | grep -q blackhole; do ip -n "$router" rule delete blackhole; done
}

netns_rate() {
    local router link
    command -v tc >/dev/null || { echo "tc is missing: install iproute2" >&2; return 1; }
    router=$(netns_name router)
    link=to$(netns_index "$1")
    tc -n "$router" qdisc delete dev "$link" root 2>/dev/null || true
    [ -z "$2" ] || tc -n "$router" qdisc add dev "$link" root tbf rate "$2" burst 64k latency 400ms
}
