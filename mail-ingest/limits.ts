/** What one message, and one connection, may cost before anything is parsed or stored (decided §7.2). */
export interface MailLimits {
  messageBytes: number;
  /** Header fields in the whole message, those of its parts included. */
  headers: number;
  /** Of one header field, its continuation lines included. */
  headerBytes: number;
  /** MIME parts of the whole message, at any depth. */
  parts: number;
  /** Multiparts and messages inside one another. */
  depth: number;
  /** `Received` fields: a message that has been through more servers is in a loop. */
  hops: number;
  connections: number;
  connectionsPerAddress: number;
  /** Refused recipients after which a connection is closed: nobody should learn addresses by trying. */
  refusedRecipients: number;
  /** Silence after which a connection is closed. */
  idleMs: number;
  /** Whole life of a connection, however busy: a sender that drips bytes is idle too. */
  connectionMs: number;
  /** For the API to answer about a recipient. */
  recipientMs: number;
  /** For the API to store a message once all of it has been sent. */
  storeMs: number;
  /** For messages under way when the process is told to stop. */
  drainMs: number;
}

export const defaultMailLimits: MailLimits = {
  messageBytes: 30 * 1024 * 1024,
  headers: 1_000,
  headerBytes: 64 * 1024,
  parts: 200,
  depth: 20,
  hops: 100,
  connections: 500,
  connectionsPerAddress: 50,
  refusedRecipients: 20,
  idleMs: 60_000,
  connectionMs: 30 * 60_000,
  recipientMs: 10_000,
  storeMs: 60_000,
  drainMs: 25_000,
};
