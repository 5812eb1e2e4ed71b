# Sourced by scripts that test with Python, after lib.sh: an environment with pinned packages, which come from PyPI once.
# shellcheck shell=bash
#
#   MAYFLY_TEST_PYTHON    the Python to test with, 3.10 or newer (python3)
#   MAYFLY_TEST_PROGRAM   the binary to test with, instead of one that is built now
python=${MAYFLY_TEST_PYTHON:-python3}

# What is missing here ends the script with 69.
absent() {
    echo "$title: $*" >&2
    exit 69
}

# Sets `folder`, an environment with all that a file of requirements names, and `version`, its Python.
take_environment() {
    local name=$1 requirements=$2 is_new
    title=${name//-/ }
    have "$python" || absent "$python is not here ('apt install python3 python3-venv')"
    read -r version is_new < <("$python" -c 'import sys; print(*sys.version_info[:2], sep=".", end=" "); print(sys.version_info >= (3, 10))')
    [[ $is_new == True ]] || absent "$python is $version, and it needs 3.10"
    folder=$PWD/target/$name-$version-$(sha256sum "$requirements" | cut -c 1-12)
    [[ ! -e $folder/installed ]] || return 0
    rm -rf -- "$folder"
    "$python" -m venv "$folder" >&2 || absent "$python can make no environment here ('apt install python3-venv')"
    "$folder/bin/pip" install --quiet --disable-pip-version-check --timeout 20 --require-hashes \
        --requirement "$requirements" || absent "what it is tested with can't be had from PyPI"
    touch -- "$folder/installed"
}

# Sets and exports MAYFLY_TEST_PROGRAM.
take_program() {
    if [[ -z ${MAYFLY_TEST_PROGRAM:-} ]]; then
        step "build mayfly" cargo build --locked --package mayfly-cli
        MAYFLY_TEST_PROGRAM=$(target_folder)/debug/mayfly
    fi
    export MAYFLY_TEST_PROGRAM
}
