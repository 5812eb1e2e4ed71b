# Sourced by `services`, whose folder is $dir: PostgreSQL and RabbitMQ as containers of the engine that DOCKER_HOST or the
# machine names.
# shellcheck shell=bash

# Until a registry has said what an image is made of, and until all of it is here. Seconds.
registry_answers=20
image_is_here=300

# The image of a service: named by the environment, else as docker-compose.yml has it, by digest.
image_of() {
    local name=${1^^}
    local ours=MAYFLY_TEST_${name}_IMAGE
    echo "${!ours:-$(sed -nE "s/^ *image: .\{MAYFLY_${name}_IMAGE:-([^}]*)\}$/\1/p" "$(dirname "${BASH_SOURCE[0]}")/../docker-compose.yml")}"
}

# A folder's engine is the one that it was started on, whatever DOCKER_HOST says by now.
# shellcheck disable=SC2154
engine() { DOCKER_HOST=$(cat -- "$dir/engine") docker "$@"; }

# containers PASSWORD SERVICE...: starts them, or none of them and says in one line why.
containers() {
    local password=$1 service
    shift
    why=""
    echo "${DOCKER_HOST:-unix:///var/run/docker.sock}" >"$dir/engine"
    if engine_answers && images_are_here "$@"; then
        for service in "$@"; do
            "container_of_$service" "$password" || break
        done
    fi
    [[ -n $why ]] || return 0
    say "not as containers: $why"
    remove_containers
    return 1
}

engine_answers() {
    command -v docker >/dev/null || why="there is no docker command"
    [[ -n $why ]] || timeout 10 docker --host "$(cat -- "$dir/engine")" version >/dev/null 2>&1 || why="no container engine answers"
    [[ -z $why ]]
}

images_are_here() {
    local service image pid pids=() logs=()
    for service in "$@"; do
        image=$(image_of "$service")
        engine image inspect "$image" >/dev/null 2>&1 && continue
        say "pulling $image"
        logs+=("$dir/$service.pull")
        engine pull "$image" >"$dir/$service.pull" 2>&1 &
        pids+=($!)
    done
    ((${#pids[@]} > 0)) || return 0
    ended() { for pid in "${pids[@]}"; do ! kill -0 "$pid" 2>/dev/null || return 1; done; }
    # What a pull prints once it has the manifest.
    answered() { ended || [[ $(grep -lE 'Pulling fs layer|Already exists|Digest:' -- "${logs[@]}" | wc -l) == "${#logs[@]}" ]]; }
    if ! await "$registry_answers" answered; then
        why="no registry answers within $registry_answers s"
    elif ! await "$image_is_here" ended; then
        why="pulling takes longer than $image_is_here s"
    fi
    for pid in "${pids[@]}"; do
        [[ -z $why ]] || kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || why=${why:-"an image can't be pulled: $(last_words <(cat -- "${logs[@]}"))"}
    done
    [[ -z $why ]]
}

# Ports are published on this host's loopback; where the engine has no bridge, its host's loopback is listened on.
has_bridge() { [[ -n $(engine network ls --quiet --filter driver=bridge --filter 'name=^bridge$') ]]; }

# container SERVICE PORTS ARGS...: makes one, its command behind `--`, and says its id. The ports have the same numbers
# inside and outside.
container() {
    local service=$1 port network=(--network host) options=() image
    local ports=$2
    shift 2
    if has_bridge; then
        network=()
        for port in $ports; do network+=(--publish "127.0.0.1:$port:$port"); done
    fi
    while [[ $1 != -- ]]; do options+=("$1"); shift; done
    image=$(image_of "$service")
    engine create --pull never --label "mayfly.services=$dir" --security-opt no-new-privileges "${network[@]}" "${options[@]}" "$image" "${@:2}" \
        2>"$dir/$service.log" | tee -- "$dir/$service.container"
}

# started SERVICE ID PORT READY...: begins it, and waits until it is ready by its own account and its port answers here.
started() {
    local service=$1 id=$2 port=$3
    shift 3
    if [[ -z $id ]] || ! engine start "$id" >/dev/null 2>>"$dir/$service.log"; then
        why="$service: $(last_words "$dir/$service.log")"
        return 1
    fi
    runs() { [[ $(engine inspect --format '{{.State.Running}}' "$id" 2>/dev/null) == true ]]; }
    ready() { ! runs || engine exec "$id" "$@" >/dev/null 2>&1; }
    answers() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }
    if ! await 90 ready "$@" || ! runs; then
        engine logs "$id" >>"$dir/$service.log" 2>&1 || true
        why="$service does not start; its last words: $(last_words "$dir/$service.log")"
    elif ! await 5 answers; then
        why="$service's port $port on 127.0.0.1 does not answer here: is the engine another host's?"
    fi
    [[ -z $why ]]
}

# copied TEXT ID PATH: as a file of the container, which its server may read whoever that is.
copied() {
    local file=$dir/copied
    (umask 077 && printf '%s\n' "$1" >"$file" && chmod 444 "$file")
    engine cp "$file" "$2:$3" >/dev/null 2>&1
    rm -f -- "$file"
}

container_of_postgres() {
    local port=${MAYFLY_POSTGRES_PORT:-$(free_ports 1)} listen=127.0.0.1 id
    ! has_bridge || listen='*'
    id=$(container postgres "$port" --env POSTGRES_USER=mayfly --env POSTGRES_DB=mayfly --env POSTGRES_PASSWORD_FILE=/etc/mayfly-password \
        --env "POSTGRES_INITDB_ARGS=--auth-host=scram-sha-256 --auth-local=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8" --shm-size 256m \
        -- postgres -c "port=$port" -c "listen_addresses=$listen" -c max_connections=200)
    [[ -z $id ]] || copied "$1" "$id" /etc/mayfly-password
    started postgres "$id" "$port" pg_isready -q -h 127.0.0.1 -p "$port" -U mayfly || return 1
    echo "DATABASE_URL=postgres://mayfly:$1@127.0.0.1:$port/mayfly" >>"$dir/env"
    say "PostgreSQL as a container, $(image_of postgres), on port $port"
}

container_of_rabbitmq() {
    local port=${MAYFLY_RABBITMQ_PORT:-$(free_ports 4)} listen=127.0.0.1 id
    ! has_bridge || listen=0.0.0.0
    id=$(container rabbitmq "$port $((port + 1))" --env "RABBITMQ_NODENAME=mayfly-$port@localhost" --env "RABBITMQ_DIST_PORT=$((port + 2))" \
        --env "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}" \
        --env "ERL_EPMD_PORT=$((port + 3))" --env ERL_EPMD_ADDRESS=127.0.0.1 -- rabbitmq-server)
    if [[ -n $id ]]; then
        copied "$(rabbitmq_conf "$listen" "$port" "$1")" "$id" /etc/rabbitmq/rabbitmq.conf
        copied '[rabbitmq_management].' "$id" /etc/rabbitmq/enabled_plugins
    fi
    echo "$port" >"$dir/rabbitmq.port"
    started rabbitmq "$id" "$port" rabbitmq-diagnostics -q check_port_listener "$port" || return 1
    broker_addresses "$port" "$1"
    say "RabbitMQ as a container, $(image_of rabbitmq), on port $port"
}

# broker_container stop|kill|start: as of the broker from packages.
broker_container() {
    local id port
    id=$(cat -- "$dir/rabbitmq.container") port=$(cat -- "$dir/rabbitmq.port")
    case $1 in
        stop | kill) engine "$1" "$id" >/dev/null ;;
        start)
            why=""
            started rabbitmq "$id" "$port" rabbitmq-diagnostics -q check_port_listener "$port" || fail "$why."
            ;;
    esac
}

remove_containers() {
    local file
    for file in "$dir"/*.container; do
        [[ -s $file ]] || continue
        engine rm --force --volumes "$(cat -- "$file")" >/dev/null 2>&1 || fail "the container $(cat -- "$file") can't be removed."
        rm -f -- "$file"
    done
}
