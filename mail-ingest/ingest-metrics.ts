import { Counter, Gauge, Histogram, type Metrics } from "#platform/metrics.ts";

export type IngestMetrics = ReturnType<typeof ingestMetrics>;

/** What mail ingest counts. `code` is the SMTP reply, `lost` for a sender that went away in the middle. */
export function ingestMetrics(registry: Metrics) {
  const registers = [registry];
  return {
    connections: new Gauge({ name: "kapstone_mail_connections", help: "Open SMTP connections", registers }),
    recipients: new Counter({ name: "kapstone_mail_recipients_total", help: "Answers to RCPT by code", labelNames: ["code"], registers }),
    messages: new Counter({ name: "kapstone_mail_messages_total", help: "Answers to messages by code", labelNames: ["code"], registers }),
    bytes: new Counter({ name: "kapstone_mail_bytes_total", help: "Bytes of messages received", registers }),
    seconds: new Histogram({
      name: "kapstone_mail_message_seconds",
      help: "From DATA to its answer",
      buckets: [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300],
      registers,
    }),
  };
}
