#!/usr/bin/env bash
# with_tls.sh COMMAND...: runs a command in whose environment every master and peer has a certificate, so that the
# tests of insecure runs are tests of secure ones. Shared memory is off, because it would take the place of TLS.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for name in ca all; do openssl ecparam -name prime256v1 -genkey -noout -out $name.key; done
openssl req -x509 -new -key ca.key -subj "/CN=test authority" -days 7 -out ca.pem
openssl req -new -key all.key -subj "/CN=everybody" -out all.csr
openssl x509 -req -in all.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 7 -out all.pem \
    -extfile <(echo "subjectAltName=DNS:master.test") 2>openssl.log || { cat openssl.log >&2; exit 1; }
cd "$OLDPWD"
export PCCL_TLS_CA=$folder/ca.pem PCCL_TLS_CERT=$folder/all.pem PCCL_TLS_KEY=$folder/all.key
export PCCL_TLS_MASTER_NAME=master.test PCCL_SHARED_MEMORY=0
"$@"
