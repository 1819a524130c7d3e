# Haulier as an image:
#
#     docker build -t haulier .                        # the relay
#     docker build -t haulier-orders --target orders . # the example application
#
# The relay runs as an unprivileged user and expects its settings at /etc/haulier/haulier.toml. Plugins
# are looked for in /etc/haulier/plugins and routes in /etc/haulier/routes unless the settings name other
# folders; the example plugin is at /usr/share/haulier/plugins. It writes to /var/lib/haulier only, where
# it keeps compiled plugins and their earlier versions: with a read-only root file system mount
# something there, or it goes without.
#
# BuildKit is needed, which is what `docker build` is by default.

FROM rust:1.95-bookworm AS source
WORKDIR /src
# First what seldom changes. The script installs what the build needs; cargo then fetches what
# rust-toolchain.toml asks for and the image has not.
COPY rust-toolchain.toml ./
COPY tests/tools tests/
RUN tests/tools && cargo --version
COPY . .

FROM source AS host
# `dev` builds sooner, for trying things out.
ARG PROFILE=release
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --profile "$PROFILE" -p haulier -p haulier-examples --bins \
    && built="target/$([ "$PROFILE" = dev ] && echo debug || echo "$PROFILE")" \
    && mkdir /out && cp "$built/haulier" "$built/orders" /out/ \
    # Three quarters of the binary are line numbers for backtraces; the names of functions stay.
    && strip --strip-debug /out/*

FROM source AS guests
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/plugins/target \
    cd plugins && cargo build --locked --release -p order-events \
    && mkdir /out && cp target/wasm32-wasip2/release/order_events.wasm /out/

FROM debian:bookworm-slim AS runtime
# The certificates are for TLS to the database and the broker.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
# A number, so that Kubernetes can see that it is not root. It needs no entry in /etc/passwd.
USER 65532:65532

FROM runtime AS orders
COPY --from=host /out/orders /usr/local/bin/
ENTRYPOINT ["orders"]

FROM runtime AS haulier
USER root
RUN install -d -o 65532 -g 65532 -m 700 /var/lib/haulier
USER 65532:65532
COPY --from=guests /out/order_events.wasm /usr/share/haulier/plugins/
COPY --from=host /out/haulier /usr/local/bin/
ENV HAULIER_CONFIG=/etc/haulier/haulier.toml
# In place of `state` of [plugin_host]. A folder below the one that is mounted, which the relay makes for
# itself: code is run from it, so it must belong to its user and be writable by nobody else.
ENV HAULIER__PLUGIN_HOST__STATE=/var/lib/haulier/state
# Metrics and health. It listens on loopback only, until [admin] listen is "0.0.0.0:9464".
EXPOSE 9464
# Alive, not ready: while a broker is away the relay waits, and starting it anew would not help.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["haulier", "health", "--live"]
ENTRYPOINT ["haulier"]
CMD ["run"]
# Last, because these change with every build.
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="Haulier" \
      org.opencontainers.image.description="A relay for the transactional outbox, with WebAssembly plugins" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED"
