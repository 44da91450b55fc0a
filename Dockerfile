# Images of the two daemons. No GPU is needed to build them.
#
#   docker build --target fgpu -t fgpu --build-arg BUILD_ID="$(git describe --always --dirty)" .
#   docker build --target xbgpu -t xbgpu --build-arg BUILD_ID="$(git describe --always --dirty)" .
#   docker run --rm fgpu --print-example > fgpu.yaml
#   docker run --rm --network host --gpus device=0 --ulimit memlock=-1 --ulimit nofile=65536 --cap-add SYS_NICE \
#       -v "$PWD/fgpu.yaml:/etc/cbf/fgpu.yaml:ro" -v fgpu-cache:/var/cache/cbf -v fgpu-state:/var/lib/cbf fgpu
#
# --network host     Multicast and the host's interfaces. Raise the host's socket buffers by systemd/sysctl.conf.
# --gpus             The GPU; leave the option out with "device: {kind: cpu}". The host needs NVIDIA's container toolkit.
# --ulimit memlock   Pinned and registered buffers.
# --cap-add SYS_NICE Memory on the GPU's NUMA node: Docker's system call filter allows mbind with this capability.
# fgpu-cache         Compiled kernels and results of --tune. Without this volume, each new container compiles them.
# fgpu-state         Settings that survive a restart.
#
# "transport: ibverbs" also needs: --user root --cap-add NET_RAW --device /dev/infiniband.
# "recv.direct: true" needs Vulkan, which these images lack.
# Huge pages are transparent huge pages of the host: /sys/kernel/mm/transparent_hugepage/enabled is "madvise" or "always".
# "docker stop -t 90" leaves time for the drain (docs/operation.md).
ARG CUDA=13.0.2
ARG SYSTEM=ubuntu24.04

# Build tools and libraries; .devcontainer uses this stage.
FROM nvidia/cuda:${CUDA}-devel-${SYSTEM} AS tools
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates git make && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY scripts/setup scripts/
RUN scripts/setup deb && rm -rf /var/lib/apt/lists/*

# Debian packages of the tree; scripts/deb reads the build id from the environment where git is missing.
FROM tools AS build
COPY . .
ARG BUILD_ID=release
RUN BUILD_ID=${BUILD_ID} scripts/deb /packages

# NVRTC and cuFFT come with this base; the driver comes from the host.
FROM nvidia/cuda:${CUDA}-runtime-${SYSTEM} AS runtime
# hadolint ignore=DL3008
RUN --mount=type=bind,from=build,source=/packages,target=/packages \
    apt-get update && \
    apt-get install -y --no-install-recommends ibverbs-providers \
        /packages/gpucbf_*.deb /packages/gpucbf-cuda_*.deb && \
    rm -rf /var/lib/apt/lists/* && \
    install -d -o cbf -g cbf /var/cache/cbf /var/lib/cbf
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    CACHE_DIRECTORY=/var/cache/cbf \
    STATE_DIRECTORY=/var/lib/cbf
# hadolint ignore=DL3066
USER cbf
STOPSIGNAL SIGTERM

FROM runtime AS xbgpu
ENTRYPOINT ["/usr/bin/xbgpu"]
CMD ["/etc/cbf/xbgpu.yaml"]

FROM runtime AS fgpu
ENTRYPOINT ["/usr/bin/fgpu"]
CMD ["/etc/cbf/fgpu.yaml"]
