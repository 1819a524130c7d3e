# shellcheck shell=bash disable=SC2154
# The certificates that all services share. Sourced by tests/services.

# A CA and a server certificate, new with each `up` on an empty folder.
make_certificates() {
  local dir=$base/tls.new log=$services/tls.log
  local key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -config "$conf/tls.cnf")
  [[ ! -d $base/tls ]] || return 0
  rm -rf "$dir" && mkdir "$dir"
  {
    openssl req -x509 "${key[@]}" -extensions ca -days 3650 -subj '/CN=Haulier test CA' \
      -keyout "$dir/ca.key" -out "$dir/ca.pem" &&
      openssl req "${key[@]}" -subj /CN=localhost \
        -keyout "$dir/server.key" -out "$dir/server.csr" &&
      openssl x509 -req -in "$dir/server.csr" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" \
        -CAcreateserial -days 3650 -extfile "$conf/tls.cnf" -extensions server \
        -out "$dir/server.crt"
  } >"$log" 2>&1 || fail tls "openssl could not make the certificates" "$log"
  mv "$dir" "$base/tls"
}
