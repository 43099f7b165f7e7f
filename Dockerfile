# Two images from one file: `service` (web, beat, sink, workers that start no agents) and `lab` (the worker of a site with
# the local dispatcher, which builds kernels and boots virtual machines itself).

FROM node:20-bookworm-slim AS pages
WORKDIR /srv/tidemark
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts --no-audit --no-fund

FROM python:3.11-slim-bookworm AS build
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

FROM python:3.11-slim-bookworm AS service
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates git \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 10001 tidemark \
    && useradd --system --uid 10001 --gid tidemark --home-dir /var/lib/tidemark --create-home tidemark \
    && install -d -o tidemark -g tidemark /var/lib/sink
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
CMD ["gunicorn", "server.wsgi:application", "--bind", "0.0.0.0:8000", "--worker-class", "gthread", "--workers", "2", \
     "--threads", "8", "--timeout", "60", "--no-control-socket"]

FROM service AS lab
USER root
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        bc bison bubblewrap ccache flex gcc kmod libc6-dev libelf-dev libssl-dev make \
        qemu-system-x86 rsync xz-utils \
    && rm -rf /var/lib/apt/lists/*
USER tidemark
CMD ["celery", "-A", "workers", "worker", "--concurrency", "4", "--loglevel", "INFO"]
