#!/bin/sh
# Builds one image and pushes it: docker-image.sh REF CONTEXT [DOCKERFILE [TARGET]]. What skaffold.yaml calls unless IMAGE_BUILDER names another
# builder with the same arguments. CONTAINER_ENGINE is docker (with buildx) unless told; podman and nerdctl know the same arguments.
set -eu
ref=$1 context=$2 dockerfile=${3:-Dockerfile} target=${4:-}
engine=${CONTAINER_ENGINE:-docker}
command -v "$engine" >/dev/null || {
  echo "docker-image.sh: there is no $engine here: install it, set CONTAINER_ENGINE to podman or nerdctl, or IMAGE_BUILDER to a program that builds and pushes" >&2
  exit 1
}
"$engine" build --tag "$ref" --file "$context/$dockerfile" ${target:+--target "$target"} "$context"
# With a cluster that reads the engine's own images (kind load, minikube's docker-env) nothing is pushed.
if [ "${PUSH_IMAGE:-true}" = true ]; then "$engine" push "$ref"; fi
