#!/bin/sh
# Makes what docker-compose.secured.yml mounts: an authority, a certificate for each service, and tokens.
#
#   sudo deploy/secrets.sh FOLDER [NAME...]
#
# NAMEs are the host names and addresses of the coordinator for clients, besides localhost. As root it gives each folder
# to the user that its container runs as. Clients need FOLDER/ca.crt and FOLDER/client-token; FOLDER/ca.key signs
# certificates: keep it elsewhere.
set -eu
umask 077

[ $# -ge 1 ] || { echo "which folder? $0 FOLDER [NAME...]" >&2; exit 2; }
folder=$1
shift
mkdir "$folder"
cd "$folder"
chmod 755 .
mkdir coordinator draft target prometheus

authority() {
  cat > request <<END
[req]
prompt = no
distinguished_name = name
x509_extensions = authority
[name]
CN = specpair
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
END
  openssl req -x509 -config request -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
    -keyout ca.key -out ca.crt 2> /dev/null
  chmod 644 ca.crt
}

# kind NAME: prints how a certificate calls it; clients look for an address among the addresses alone
kind() {
  case $1 in
    *:*) echo IP ;;
    *[!0-9.]*) echo DNS ;;
    *.*.*.*) echo IP ;;
    *) echo DNS ;;
  esac
}

# certificate SERVICE [NAME...]
certificate() {
  service=$1
  names="DNS:$service, DNS:localhost, IP:127.0.0.1"
  shift
  for name in "$@"; do names="$names, $(kind "$name"):$name"; done
  cat > request <<END
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = $names
END
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$service" \
    -keyout "$service/tls.key" -out "$service/request" 2> /dev/null
  openssl x509 -req -in "$service/request" -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -extfile request \
    -out "$service/tls.crt" 2> /dev/null
  rm "$service/request"
}

# token FILE: writes a new token
token() { openssl rand -hex 32 > "$1"; }

# line NAME FILE: prints a line of a tokens file, with the token's digest
line() { echo "$1:sha256:$(tr -d '\n' < "$2" | openssl dgst -sha256 -r | cut -c 1-64)"; }

authority
certificate coordinator "$@"
certificate draft
certificate target
rm request ca.srl
cp ca.crt coordinator/
cp ca.crt prometheus/

token client-token
token coordinator/peer-token
token prometheus/token
{ line client client-token; line prometheus prometheus/token; } > coordinator/tokens
{ line coordinator coordinator/peer-token; line prometheus prometheus/token; } > target/tokens
cp target/tokens draft/tokens

if [ "$(id -u)" = 0 ]; then
  chown -R 10001 coordinator draft target
  chown -R 65534 prometheus
  chown "${SUDO_UID:-0}" client-token ca.key
else
  echo "give the folders to the users of the containers: 10001, and for prometheus 65534" >&2
fi
