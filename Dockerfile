# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
#
# The host variant: no CUDA. Build with
#   docker build -t sluice .        (or: buildah bud --format docker -t sluice .)
# Run with a model repository mounted read-only:
#   docker run --rm -p 8001:8001 -p 8002:8002 -v "$PWD/models:/models:ro" sluice
ARG BASE_IMAGE=debian:12-slim

FROM ${BASE_IMAGE} AS build
COPY . /src
WORKDIR /src
RUN bash scripts/setup.sh --no-models && bash scripts/build.sh release sluice-server sluice \
    && install -D -s build/release/server/sluice-server /out/usr/local/bin/sluice-server \
    && install -D -s build/release/client/sluice /out/usr/local/bin/sluice

FROM ${BASE_IMAGE}
RUN apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
       libgrpc++1.51 libprotobuf32 libprometheus-cpp-core1.0 libprometheus-cpp-pull1.0 libdnnl2 libgomp1 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/ /
COPY LICENSE /usr/share/doc/sluice/LICENSE
LABEL org.opencontainers.image.title="sluice" \
      org.opencontainers.image.description="gRPC inference server with a latency lane and a batch lane on one device" \
      org.opencontainers.image.licenses="Apache-2.0"
# A number, so that Kubernetes can check runAsNonRoot; nothing is written, so the root file system may be read-only.
USER 65532:65532
EXPOSE 8001 8002
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s CMD ["/usr/local/bin/sluice-server", "healthcheck", "--grpc-port", "8001"]
ENTRYPOINT ["/usr/local/bin/sluice-server"]
CMD ["--model-repository", "/models"]
