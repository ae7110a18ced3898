# The program draftsmith on Debian 12, for CPUs: 604 MB, of which LibTorch takes 458.
#
#   docker build --tag draftsmith --build-arg DRAFTSMITH_COMMIT=$(git rev-parse --short=10 HEAD) .
#   docker run --rm --interactive --volume "$PWD:/work" draftsmith generate --model DIR <lines.txt
#
# /work is the working directory, /data is $DATA of recipes and suites: --volume /path/to/data:/data:ro. The recipes are
# in /usr/local/share/draftsmith/recipes, with tiny.toml, which takes seconds. The program runs as user number 1000; if
# the mounted folder is another user's, add --user "$(id -u):$(id -g)". Chat templates run; GGUF files, imported
# (also by `new`) or exported, need an image of yours with Python's gguf (pip install gguf).

FROM debian:bookworm-slim AS builder
WORKDIR /src
COPY tools/packages.txt tools/
RUN apt-get update && \
    sed 's/#.*//' tools/packages.txt | DEBIAN_FRONTEND=noninteractive xargs apt-get install -y --no-install-recommends
# LibTorch for CPUs: headers, libtorch_cpu.so and its libraries, from PyPI's wheel for GPUs. Two of the libraries are
# CUDA's runtime and profiler, 5 MB, which do nothing on CPUs.
COPY tools/requirements.txt tools/
RUN python3 -m venv /venv && \
    /venv/bin/pip install --no-cache-dir --no-deps "$(grep ^torch== tools/requirements.txt)" && \
    cd /venv/lib/python3*/site-packages && \
    sed -n 's/^Requires-Dist: cuda-toolkit.*\(==[0-9.]*\);.*/cuda-toolkit[cudart,cupti]\1/p' torch-*/METADATA | \
      xargs -r /venv/bin/pip install --no-cache-dir && \
    mkdir -p /opt/libtorch/lib && \
    cp -r torch/include torch-*/licenses/LICENSE torch-*/licenses/NOTICE /opt/libtorch/ && \
    ldd torch/lib/libtorch_cpu.so | awk '$3 ~ /^\/venv/ {print $3}' | \
      xargs cp -t /opt/libtorch/lib torch/lib/libtorch_cpu.so
COPY . .
ARG DRAFTSMITH_COMMIT=unknown
RUN cmake -B build/image -G Ninja -DCMAKE_BUILD_TYPE=Release -DLIBTORCH=/opt/libtorch && \
    cmake --build build/image --target draftsmith && \
    cmake --install build/image --prefix /opt/draftsmith --component program --strip

FROM debian:bookworm-slim
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      libfmt9 libhdf5-103-1 libicu72 libonig5 libsentencepiece0 libssl3 libstdc++6 \
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
