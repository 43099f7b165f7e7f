# The images from one file: `service` (web, workers, beat, sink) and `builder`, which has the agent and compilers, and
# nothing of the service: kernels are built and virtual machines boot in it. For the profile `jenkins` there are a
# controller with its plugins, and `builder` with a Java. `make pins` names the bases by their digests.
ARG NODE_IMAGE=node:20.19.4-bookworm-slim
ARG PYTHON_IMAGE=python:3.11.13-slim-bookworm
ARG POSTGRES_IMAGE=postgres:17.5-bookworm
ARG JENKINS_IMAGE=jenkins/jenkins:2.528.1-jdk21

FROM $NODE_IMAGE AS pages
WORKDIR /srv/tidemark
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts --no-audit --no-fund

FROM $PYTHON_IMAGE AS build
ENV PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/venv
COPY requirements.txt /tmp/
RUN /opt/venv/bin/pip install --no-cache-dir --require-hashes -r /tmp/requirements.txt
WORKDIR /srv/tidemark
COPY . ./
COPY --from=pages /srv/tidemark/node_modules ./node_modules
# The settings want to be there; only files are read and written.
RUN TIDEMARK_ENV_FILE=/dev/null TIDEMARK_SECRET_KEY=none TIDEMARK_DATABASE_URL=postgres:///none \
    TIDEMARK_REDIS_URL=redis://none /opt/venv/bin/python manage.py collectstatic --no-input \
    && /opt/venv/bin/python scripts/build_agent.py tidemark-agent.pyz \
    && rm -rf package.json package-lock.json requirements.txt

# What makes backups may not be older than the server: it is the server's own, with the library that it speaks by.
FROM $POSTGRES_IMAGE AS postgres
USER root
RUN install -d /client/bin /client/lib \
    && cp /usr/lib/postgresql/*/bin/pg_dump /usr/lib/postgresql/*/bin/pg_restore /usr/lib/postgresql/*/bin/psql /client/bin \
    && cp -L /usr/lib/*/libpq.so.5 /client/lib

FROM $PYTHON_IMAGE AS service
COPY --from=postgres /client /usr/local
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        bubblewrap ca-certificates git libgssapi-krb5-2 libldap-2.5-0 liblz4-1 libreadline8 libssl3 libzstd1 \
    && ldconfig && pg_dump --version && pg_restore --version && psql --version \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 10001 tidemark \
    && useradd --system --uid 10001 --gid tidemark --home-dir /var/lib/tidemark --create-home tidemark \
    # New volumes take owner and mode of what they cover.
    && install -d -o tidemark -g tidemark /var/lib/sink /var/lib/tidemark/state \
    && install -d -o tidemark -g tidemark -m 0700 /var/lib/tidemark/nodes \
    && cd /var/lib/tidemark/state && install -d -o tidemark -g tidemark -m 0700 mirror.git agents tokens
COPY --from=build /opt/venv /opt/venv
COPY --from=build /srv/tidemark /srv/tidemark
WORKDIR /srv/tidemark
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    TIDEMARK_ENV_FILE=/dev/null \
    TIDEMARK_LOCAL_AGENT=/srv/tidemark/tidemark-agent.pyz \
    TIDEMARK_STATE_DIR=/var/lib/tidemark/state
USER tidemark
VOLUME /var/lib/tidemark
EXPOSE 8000
CMD ["gunicorn", "--config", "python:server.web.process", "--bind", "0.0.0.0:8000"]

FROM $PYTHON_IMAGE AS builder
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        bc bison bubblewrap ca-certificates ccache flex gcc git kmod libc6-dev libelf-dev libssl-dev make \
        qemu-system-x86 rsync xz-utils \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 10001 tidemark \
    && useradd --system --uid 10001 --gid tidemark --home-dir /var/lib/tidemark --create-home tidemark \
    && install -d -o tidemark -g tidemark /var/lib/tidemark/state \
    && cd /var/lib/tidemark && install -d -o tidemark -g tidemark -m 0700 ccache state/mirror.git state/agents state/tokens
COPY --from=build /srv/tidemark/tidemark-agent.pyz /usr/local/bin/tidemark-agent
WORKDIR /var/lib/tidemark
ENV PYTHONDONTWRITEBYTECODE=1
USER tidemark
CMD ["tidemark-agent", "serve", "/var/lib/tidemark/state/agents"]

FROM builder AS jenkins-agent
USER root
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends busybox-static curl \
        default-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o tidemark -g tidemark -m 0700 /var/lib/tidemark/nodes
USER tidemark
CMD ["sh", "/etc/tidemark/node.sh"]

FROM $JENKINS_IMAGE AS jenkins
RUN jenkins-plugin-cli --plugins configuration-as-code:2006.v001a_2ca_6b_574 matrix-auth:3.2.8
COPY agents/jenkins/jenkins.yaml /etc/tidemark/jenkins.yaml
COPY containers/jenkins/tokens.groovy /usr/share/jenkins/ref/init.groovy.d/tokens.groovy
