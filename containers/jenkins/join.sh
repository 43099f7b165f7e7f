#!/bin/sh
# Tells the service of the two hosts of the profile `jenkins`, makes their jobs and nodes, and leaves in the volume that
# their agents see what each needs: the node's secret, and a token of its own. Run again it changes what differs.
set -eu
umask 077
nodes=/var/lib/tidemark/nodes
for host in compose-builder compose-vm; do
    mkdir -p "$nodes/$host"
done
# The site's file names the configuration beside it.
cp /etc/tidemark/lab.toml demo/kernel.config /tmp/
python manage.py load_site /tmp/lab.toml
python manage.py load_benchmarks agents/benchmarks
python manage.py jenkins_apply --user lab-admin --token-file /run/secrets/jenkins-lab-admin-token --secrets "$nodes/secrets"
for host in compose-builder compose-vm; do
    if [ ! -s "$nodes/$host/token" ]; then
        python manage.py issue_token "$host" >"$nodes/$host/token.new"
        mv "$nodes/$host/token.new" "$nodes/$host/token"
    fi
done
