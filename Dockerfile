# syntax=docker/dockerfile:1
# One image for both programs, less what its reader does not run: EXTRAS chooses (docs/install.md has the sizes).
#   device managers   --build-arg EXTRAS=nvidia
#   worker            --build-arg EXTRAS=worker
#   both (default)    --build-arg EXTRAS=nvidia,worker
#   people            --build-arg EXTRAS=cli, which can read kubeconfigs
ARG PYTHON=3.13-slim-bookworm

FROM python:${PYTHON} AS build
ARG EXTRAS=nvidia,worker
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY devicemanager devicemanager
COPY collectors collectors
# --compile: without byte code every start of a collector costs 45 ms and 12 MiB more, and the root is read-only.
# What is installed is this tree, and pyproject.toml bounds its dependencies.
# hadolint ignore=DL3013
RUN python -m venv --without-pip /opt/devicemanager \
 && pip --python /opt/devicemanager/bin/python install --no-cache-dir --compile ".[${EXTRAS}]"

FROM python:${PYTHON}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="devicemanager" \
      org.opencontainers.image.description="What one Kubernetes workload uses right now: CPU, memory, disk and exactly its own accelerators" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/devicemanager /opt/devicemanager
ENV PATH=/opt/devicemanager/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 32443 10250
ENTRYPOINT ["/opt/devicemanager/bin/devicemanager"]
CMD ["--help"]
