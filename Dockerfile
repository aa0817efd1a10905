# One image per process: build with --target api, operator, runtime or mail-ingest.
FROM node:26-bookworm-slim AS source
WORKDIR /src
COPY package.json package-lock.json ./
# What the lock file says, without install scripts: native code comes ready made in its package. (npm leaves other machines' optional packages out of
# the lock file, and `npm ci` then refuses it.)
RUN npm install --no-save --omit=dev --ignore-scripts --no-audit --no-fund
COPY . .

FROM source AS build-api
RUN node scripts/bundle-images.ts /image api
FROM source AS build-operator
RUN node scripts/bundle-images.ts /image operator
FROM source AS build-runtime
RUN node scripts/bundle-images.ts /image runtime
FROM source AS build-mail-ingest
RUN node scripts/bundle-images.ts /image mail-ingest

# Node is process 1 and handles SIGTERM itself. Nothing is written below /app, so the root may be read-only.
FROM node:26-bookworm-slim AS base
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.vendor="Kapstone" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ENV NODE_ENV=production

FROM base AS operator
LABEL org.opencontainers.image.title="kapstone-operator" \
      org.opencontainers.image.description="Reconciles Kap resources of Kapstone; fire.js is what its CronJobs run"
COPY --from=build-operator /image/operator /app
WORKDIR /app/operator
EXPOSE 8082
USER 1000:1000
CMD ["node", "main.js"]

FROM base AS runtime
LABEL org.opencontainers.image.title="kapstone-runtime" \
      org.opencontainers.image.description="A warm runtime of Kapstone, generic until it is assigned a kap"
COPY --from=build-runtime /image/runtime /app
WORKDIR /app
ENV KAPSTONE_RUNTIME_DATA=tcp:0.0.0.0:9000 KAPSTONE_RUNTIME_CONTROL=tcp:0.0.0.0:9001
EXPOSE 9000 9001
USER 1000:1000
CMD ["node", "--no-node-snapshot", "--max-semi-space-size=1", "--no-wasm-tier-up", "--no-wasm-dynamic-tiering", "runtime/main.js"]

FROM base AS mail-ingest
LABEL org.opencontainers.image.title="kapstone-mail-ingest" \
      org.opencontainers.image.description="Takes mail for kaps over SMTP"
COPY --from=build-mail-ingest /image/mail-ingest /app
WORKDIR /app/mail-ingest
ENV KAPSTONE_SMTP_HOST=0.0.0.0 KAPSTONE_MONITORING_HOST=0.0.0.0
EXPOSE 2525 8082
USER 1000:1000
CMD ["node", "main.js"]

FROM base AS api
LABEL org.opencontainers.image.title="kapstone-api" \
      org.opencontainers.image.description="The API and gateway of Kapstone; migrate.js brings the database to this release"
COPY --from=build-api /image/api /app
RUN mkdir /var/lib/kapstone && chown 1000:1000 /var/lib/kapstone
WORKDIR /app/api
ENV KAPSTONE_HOST=0.0.0.0 KAPSTONE_INTERNAL_HOST=0.0.0.0 KAPSTONE_DATA_DIR=/var/lib/kapstone
EXPOSE 8080 8081
USER 1000:1000
CMD ["node", "main.js"]
