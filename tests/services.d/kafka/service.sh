# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# Kafka for the tests: one broker in KRaft mode, run from its published jars, with
# a plain listener and one with TLS and logins. Sourced by tests/services, which
# says what each function is.

PORTS[kafka]="KAFKA_PORT KAFKA_SASL_PORT KAFKA_CONTROLLER_PORT KAFKA_PROXIED_PORT KAFKA_PROXY_PORT"
STOP_SIGNAL[kafka]=TERM
MARK_OPTION[kafka]=-Dhaulier.service=
libs=$services/kafka-libs # the jars, kept from one run to the next

KAFKA_USER=haulier
KAFKA_PASSWORD=haulier-secret

kafka_packages() {
  local major
  major=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' || true)
  ((${major:-0} >= 17)) || echo default-jdk-headless
  command -v mvn >/dev/null || echo maven
}

kafka_fetch() {
  local pom=$conf/kafka/pom.xml log=$services/kafka-fetch.log
  cmp -s "$pom" "$libs/pom.xml" && return
  say "fetching the Kafka broker's jars"
  rm -rf "$libs" "$libs.new"
  timeout 900 mvn -q -B -f "$pom" dependency:copy-dependencies \
    -DoutputDirectory="$libs.new" >"$log" 2>&1 </dev/null ||
    fail kafka "Maven could not fetch the jars that $pom names" "$log"
  cp "$pom" "$libs.new/"
  mv "$libs.new" "$libs"
}

kafka_prepare() {
  local mechanism scram=() log=$base/kafka-format.log
  mkdir "$base/kafka"
  kafka_configure
  for mechanism in SCRAM-SHA-256 SCRAM-SHA-512; do
    scram+=(--add-scram "$mechanism=[name=$KAFKA_USER,password=$KAFKA_PASSWORD]")
  done
  java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$libs/*" kafka.tools.StorageTool \
    format -c "$base/kafka/server.properties" "${scram[@]}" \
    -t "$(openssl rand -base64 16 | tr '+/' 'xy' | cut -c1-22)" \
    >"$log" 2>&1 </dev/null ||
    fail kafka "the storage tool could not format $base/kafka/data" "$log"
}

kafka_configure() {
  (umask 077 && cat "$base/tls/server.key" "$base/tls/server.crt" >"$base/kafka/server.pem")
  sed -e "s|@DATA@|$base/kafka/data|" -e "s|@KEYSTORE@|$base/kafka/server.pem|" \
    -e "s|@USER@|$KAFKA_USER|" -e "s|@PASSWORD@|$KAFKA_PASSWORD|" \
    -e "s|@KAFKA_PORT@|$KAFKA_PORT|" -e "s|@KAFKA_SASL_PORT@|$KAFKA_SASL_PORT|" \
    -e "s|@KAFKA_CONTROLLER_PORT@|$KAFKA_CONTROLLER_PORT|" \
    -e "s|@KAFKA_PROXIED_PORT@|$KAFKA_PROXIED_PORT|" -e "s|@KAFKA_PROXY_PORT@|$KAFKA_PROXY_PORT|" \
    "$conf/kafka/server.properties" >"$base/kafka/server.properties"
}

# Half of a start goes into loading classes. So a broker that stops in good order
# leaves an archive of them for the next (some seconds, the first time); not in
# CI, where there is seldom a next one. The keystore is a PEM file that Java turns
# into an encrypted one in memory; one round of key derivation will do for that.
kafka_start() {
  local archive=$libs/classes.jsa cds=()
  if [[ -n $(head -c 4 "$archive" 2>/dev/null | tr -d '\0') ]]; then # else cut short
    cds=(-XX:SharedArchiveFile="$archive")
  elif [[ -z ${CI:-} ]]; then
    cds=(-XX:ArchiveClassesAtExit="$archive")
  fi
  kafka_configure
  detach kafka java -Xms256m -Xmx512m -XX:+UseG1GC -XX:MaxGCPauseMillis=20 \
    -XX:InitiatingHeapOccupancyPercent=35 -Djava.awt.headless=true \
    "${cds[@]}" -Xlog:cds=off -Xlog:cds+dynamic=off -Dkeystore.pkcs12.keyPbeIterationCount=1 \
    -Dlog4j2.configurationFile="$conf/kafka/log4j2.xml" "$(mark kafka)" \
    -cp "$libs/*" kafka.Kafka "$base/kafka/server.properties"
}

# Asks for the cluster's metadata (Metadata request, version 1, no topics) and
# wants the one broker in the answer, which is there once it serves clients.
kafka_ready() {
  local answer
  accepts "$KAFKA_SASL_PORT" || return 1
  answer=$(timeout 3 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$1" &&
    printf "\0\0\0\016\0\003\0\001\0\0\0\007\377\377\0\0\0\0" >&3 &&
    head -c 12 <&3 | od -An -v -tx1 -j4 | tr -d " \n"' - "$KAFKA_PORT" 2>/dev/null) || return 1
  [[ $answer == 0000000700000001 ]]
}

kafka_env() {
  export_line HAULIER_TEST_KAFKA "127.0.0.1:$KAFKA_PORT"
  export_line HAULIER_TEST_KAFKA_SASL "127.0.0.1:$KAFKA_SASL_PORT"
  export_line HAULIER_TEST_KAFKA_PROXIED "127.0.0.1:$KAFKA_PROXIED_PORT"
  export_line HAULIER_TEST_KAFKA_PROXY "127.0.0.1:$KAFKA_PROXY_PORT"
  export_line HAULIER_TEST_KAFKA_CA "$base/tls/ca.pem"
  export_line HAULIER_TEST_KAFKA_USER "$KAFKA_USER"
  export_line HAULIER_TEST_KAFKA_PASSWORD "$KAFKA_PASSWORD"
  [[ $engine != native ]] || export_line HAULIER_TEST_KAFKA_LIBS "$libs"
}
