# The server in an image of its own: built with Cargo alone, run without root.
#
#   docker build --tag zkshim .
#   docker run --publish 2181:2181 --volume zkshim:/data zkshim

FROM rust:1.95-slim-bookworm AS build
WORKDIR /source
COPY . .
# What `srvr` says of the build; `YYYY-MM-DD HH:MM UTC`.
ARG ZKSHIM_BUILT_ON="1970-01-01 00:00 UTC"
# No protobuf compiler is installed: the build takes one from a crate (tools/protoc).
RUN cargo build --locked --release --package zkshim

FROM debian:bookworm-slim
RUN useradd --uid 1000 --home-dir /data --create-home --shell /usr/sbin/nologin zkshim
COPY --from=build /source/target/release/zkshim /usr/local/bin/zkshim

USER zkshim
WORKDIR /data
# Only the embedded store keeps anything here. With `--store etcd` the container has no state.
VOLUME /data
EXPOSE 2181
ENV ZKSHIM_LISTEN=0.0.0.0:2181 \
    ZKSHIM_DATA_DIR=/data

# `srvr` is always allowed, and is answered with a mode only while the server serves: without its
# etcd the container lives, but is not healthy. `ruok` (if allowed) would say that it lives.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/2181 && printf srvr >&3 && grep -q ^Mode: <&3"]

ENTRYPOINT ["zkshim"]
CMD ["serve"]
