#!/bin/sh
# One node: waits until `jenkins-join` has left its secret and its token, then connects to the controller for ever.
set -eu
umask 077
name=$1
nodes=/var/lib/tidemark/nodes
until [ -s "$nodes/secrets/$name" ] && [ -s "$nodes/$name/token" ]; do
    echo "$name waits for its secret: docker compose run --rm jenkins-join"
    sleep 10
done
curl --fail --silent --show-error --retry 10 --retry-all-errors --output /tmp/agent.jar http://jenkins:8080/jnlpJars/agent.jar
exec java -Xmx256m -Dhudson.slaves.ChannelPinger.pingIntervalSeconds=30 -Dhudson.slaves.ChannelPinger.pingTimeoutSeconds=20 \
    -jar /tmp/agent.jar -url http://jenkins:8080/ -name "$name" -secret "@$nodes/secrets/$name" -webSocket \
    -workDir "$nodes/$name"
