# The program draftsmith on Debian 12, for CPUs: docker build --tag draftsmith .
#
# tools/container builds it with the engine at hand, or runs these very steps in folders of debootstrap; it reads FROM,
# ARG, ENV, WORKDIR, USER, COPY, RUN and ENTRYPOINT, and nothing cleverer.

FROM debian:bookworm-slim AS builder
WORKDIR /src
COPY tools/packages.txt tools/
RUN apt-get update && \
    sed 's/#.*//' tools/packages.txt | DEBIAN_FRONTEND=noninteractive xargs apt-get install -y --no-install-recommends
COPY tools/cpu_libtorch tools/requirements.txt tools/
RUN tools/cpu_libtorch /opt/libtorch
COPY . .
ARG DRAFTSMITH_COMMIT=unknown
RUN cmake -B build/image -G Ninja -DCMAKE_BUILD_TYPE=Release -DLIBTORCH=/opt/libtorch && \
    cmake --build build/image --target draftsmith && \
    cmake --install build/image --prefix /opt/draftsmith --component program --strip

FROM debian:bookworm-slim
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      libfmt9 libhdf5-103-1 libicu72 libonig5 libsentencepiece0 libspdlog1.10 libssl3 libstdc++6 \
      libtcmalloc-minimal4 libtomlplusplus3 python3-jinja2 && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --create-home --uid 1000 draftsmith && \
    mkdir /work /data && chown draftsmith: /work /data
COPY --from=builder /opt/libtorch/lib /opt/libtorch/lib
COPY --from=builder /opt/libtorch/LICENSE /opt/libtorch/NOTICE /opt/libtorch/
COPY --from=builder /opt/draftsmith/bin/draftsmith /usr/local/bin/
COPY LICENSE /usr/local/share/doc/draftsmith/
COPY recipes/*.toml python/draftsmith/recipes/tiny.toml /usr/local/share/draftsmith/recipes/
ENV DRAFTSMITH_DATA=/data
USER draftsmith
WORKDIR /work
ENTRYPOINT ["draftsmith"]
