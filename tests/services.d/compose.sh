# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# The same services from containers. Sourced by tests/services.
#
# Compose serves the tests when the repository's docker-compose.yml declares a
# profile `test`, an engine runs and every image of that profile is here. Until
# that file declares it this is never so, and the services run natively. The
# profile's part of the bargain: services of these names with health checks; the
# ports in the variables below published on 127.0.0.1 (Kafka advertises them);
# certificates from HAULIER_TLS; the users that the *_env functions name.
compose_usable() {
  local images
  [[ -f $root/docker-compose.yml ]] && timeout 10 docker info >/dev/null 2>&1 &&
    compose config --profiles 2>/dev/null | grep -x test >/dev/null &&
    images=$(compose config --images 2>/dev/null) &&
    xargs docker image inspect <<<"$images" >/dev/null 2>&1
}

compose() {
  local id
  id=$(cksum <<<"$root")
  HAULIER_TLS=$base/tls POSTGRES_PORT=${POSTGRES_PORT:-0} KAFKA_PORT=${KAFKA_PORT:-0} \
    KAFKA_SASL_PORT=${KAFKA_SASL_PORT:-0} \
    docker compose -f "$root/docker-compose.yml" -p "haulier-test-${id%% *}" --profile test "$@"
}
