# Sourced by the scripts that run tests, after lib.sh: a container engine for one run alone.
# shellcheck shell=bash

engine_folder=""
# Tests on gVisor have an engine each, since that runtime changes devices of the host: a script that wants it here says so.
engine_options=(--no-gvisor)

# What tests kill, cut and flood are containers by the thousand: where it can be, that is done to an engine that is there for
# this run alone, and not to the one that the machine has for its work. MAYFLY_TEST_ENGINE=machine takes that.
take_engine() {
    if [[ ${MAYFLY_TEST_ENGINE:-} != machine && -z ${DOCKER_HOST:-} ]] && ((EUID == 0)) \
        && have dockerd && have containerd && have docker; then
        engine_folder=$(mktemp -d /tmp/mayfly-tests-XXXXXX)
        DOCKER_HOST=unix://$(scripts/second-engine start "$engine_folder" "${engine_options[@]}") || return 1
        export DOCKER_HOST
    fi
    scripts/preflight engine || return 1
    # From here on an engine that does not answer is a failure, and no reason to leave a test out.
    export MAYFLY_TEST_ENGINE=${MAYFLY_TEST_ENGINE:-own}
}

leave_engine() {
    [[ -z $engine_folder ]] || scripts/second-engine stop "$engine_folder"
}
