#!/bin/sh
# Makes the certificates of this directory: docs/certificates/make.sh [exact] [smollm2] [qwen] [cross]; all of them by default.
# OUTRIDER is how Outrider is called; broken off, the next call goes on where this one stopped.
set -eu
cd "$(dirname "$0")"
: "${OUTRIDER:=outrider}" "${STATES:=$(mktemp -d)}"

audit() { # name, then the flags
    name=$1
    shift
    [ -e "$name.json" ] || $OUTRIDER audit pair "$@" --threads 2 --state "$STATES/$name.state" --out "$name.json"
}

smollm2() { # the draft is the target itself in 4 bits, with few tokens to say and a short memory
    set -- --target smollm2-135m --draft smollm2-135m,none --draft-options vocab=8192 --draft-options window=128
    audit smollm2-token "$@" --rule token
    audit smollm2-block "$@" --rule block
    audit smollm2-coupled "$@" --rule coupled
    audit smollm2-multi-draft "$@" --rule token --draft-tree 8
    audit smollm2-point-mass --target smollm2-135m --draft ngram --rule token
    audit smollm2-cascade --target smollm2-135m --draft smollm2-135m,ngram --draft-options vocab=8192 --rule block
}

qwen() {
    set -- --target qwen2.5-coder-1.5b --draft qwen2.5-coder-0.5b,none
    audit qwen-token "$@" --rule token
    audit qwen-block "$@" --rule block
    audit qwen-coupled "$@" --rule coupled
    audit qwen-multi-draft "$@" --rule token --draft-tree 8
    audit qwen-point-mass --target qwen2.5-coder-1.5b --draft ngram --rule token
    audit qwen-cascade --target qwen2.5-coder-1.5b --draft qwen2.5-coder-0.5b,ngram --rule block
}

cross() { # a draft of another vocabulary: its text cut into the target's tokens, and token by token
    set -- --target qwen2.5-coder-1.5b --draft smollm2-135m,none
    audit cross-strings "$@" --rule token
    audit cross-tokens "$@" --rule token --presence-penalty 0.1
}

exact() { [ -e exact.json ] || $OUTRIDER audit exact --out exact.json; }

for part in ${*:-exact smollm2 qwen cross}; do "$part"; done
